"""Dead letters: contents, wire formats, publishing and the spool."""
