"""What is measured against others, side by side in one run; nothing of it is asserted in a test."""
