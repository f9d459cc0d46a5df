"""The reference part of the documentation: made from the code whenever the site is built, and never committed."""
