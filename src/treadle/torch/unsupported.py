"""What PyTorch can say and this front end cannot: a region's nodes stay with PyTorch then, or an error where the user asked for all."""


class Unsupported(Exception):
    """An operator, or a form of one, that is not written as a loop nest; the message is the reason."""
