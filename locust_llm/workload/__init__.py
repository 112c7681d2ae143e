"""Where prompts come from: synthetic ones of a drawn length, or a file of the user's own."""
