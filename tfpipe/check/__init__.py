"""Static analysis of code that TensorFlow traces: source text in, findings out. Nothing is imported or run."""
