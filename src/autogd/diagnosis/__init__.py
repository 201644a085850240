"""What stands in the way of training, and what to do about it."""

from autogd.diagnosis.doctor import Diagnosis, doctor, width_test
from autogd.diagnosis.probe import Recommendation, probe
from autogd.diagnosis.signs import Finding

__all__ = ["Diagnosis", "Finding", "Recommendation", "doctor", "probe", "width_test"]
