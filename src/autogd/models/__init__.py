"""The networks of the paper's experiments, and a transformer."""

from autogd.models.build import build
from autogd.models.gpt import GPT
from autogd.models.plain import FCN, VGG16
from autogd.models.resnet import ResNet18, ResNet50

__all__ = ["FCN", "GPT", "VGG16", "ResNet18", "ResNet50", "build"]
