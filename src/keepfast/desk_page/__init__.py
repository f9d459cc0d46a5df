"""The page of the desk and its API: who may do what, the screens, and what they read. Needs the extra `desk`."""
