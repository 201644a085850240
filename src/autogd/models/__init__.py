"""The networks of the paper's experiments, and a transformer."""

from autogd.models.build import build
from autogd.models.fcn import FCN
from autogd.models.gpt import GPT
from autogd.models.resnet import ResNet18, ResNet50
from autogd.models.vgg import VGG16

__all__ = ["FCN", "GPT", "VGG16", "ResNet18", "ResNet50", "build"]
