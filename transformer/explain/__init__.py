"""What can be read off a pass through the model: one method a module, each an observer, a tap or a function."""
