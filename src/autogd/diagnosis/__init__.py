"""What stands in the way of training, and what to do about it."""

from autogd.diagnosis.doctor import Diagnosis, doctor, width_test
from autogd.diagnosis.finding import Finding

__all__ = ["Diagnosis", "Finding", "doctor", "width_test"]
