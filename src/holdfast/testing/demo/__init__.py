"""`holdfast demo`: a small shop's orders through a real consumer, with failures and a killed process, and the books
at the end.
"""
