"""Tells whether a TensorFlow training waits for its data, and what to change."""

__version__ = "0.1.0"
