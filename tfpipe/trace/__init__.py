"""From a profiler trace to steps, the tf.data tree and what to change. No TensorFlow, no printing."""
