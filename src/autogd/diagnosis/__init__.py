"""Find what hinders training, and say how to mend it."""

from autogd.diagnosis.doctor import Diagnosis, doctor, width_test
from autogd.diagnosis.finding import Finding

__all__ = ["Diagnosis", "Finding", "doctor", "width_test"]
