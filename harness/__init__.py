"""ringscope's harness: makes training runs happen and writes down what happened."""
