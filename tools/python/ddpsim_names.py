"""What a case's name alone decides, before anything is measured. Standard library only."""
import hashlib


def split_of(name: str) -> str:
    """One case in three is held out."""
    return "held_out" if hashlib.sha256(name.encode()).digest()[0] % 3 == 0 else "fit"


def is_repeated(name: str) -> bool:
    """One case in six is recorded again: how far a measurement is from itself."""
    return hashlib.sha256(name.encode()).digest()[1] % 6 == 0
