"""The import paths of the consumer pattern; what they lead to is keepfast's."""
