"""The views of explain: one module each, from what a method found to JSON, CSV records and plain tables."""
