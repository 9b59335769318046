"""Learning in sessions without embedding the gallery again."""
