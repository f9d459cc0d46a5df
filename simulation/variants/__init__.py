"""What makes the setup of some seeds special, a file for each subject."""
