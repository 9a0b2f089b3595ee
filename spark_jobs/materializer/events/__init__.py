"""The form of the output: from images to events."""
