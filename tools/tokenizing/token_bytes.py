"""The bytes that a token's written form stands for."""
import re

SPACE = "▁"  # SentencePiece's mark of a space
BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_of_character() -> dict[str, int]:
    """GPT-2's alphabet (encoder.py, bytes_to_unicode): printable bytes stand for themselves, the others
    for the characters from 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{chr(byte): byte for byte in printable}, **{chr(256 + n): byte for n, byte in enumerate(others)}}


BYTE_OF_CHARACTER = byte_of_character()


def of_byte_level(token: str) -> bytes:
    """Tokens that were added as plain text may have other characters."""
    if all(character in BYTE_OF_CHARACTER for character in token):
        return bytes(BYTE_OF_CHARACTER[character] for character in token)
    return token.encode()


def of_piece(piece: str) -> bytes:
    if match := BYTE_PIECE.fullmatch(piece):
        return bytes([int(match[1], 16)])
    return piece.replace(SPACE, " ").encode()
