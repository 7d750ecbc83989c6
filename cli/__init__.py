"""The only code that prints, colours, reads stdin or exits."""
