"""Tokenizers of other projects, by their libraries."""
import json
import shutil
from pathlib import Path
from typing import Optional

import token_bytes
from gguf_metadata import read_metadata
from mistakes import InputError, UsageError, package

# What GPT-2's pattern is in other models: `tokenizer.ggml.pre` of llama.cpp (src/llama-vocab.cpp).
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
PATTERNS = {"llama-bpe": LLAMA3, "llama3": LLAMA3, "qwen2": QWEN2}
DIGITS_APART = ("smollm", "starcoder", "refact", "command-r")
GPT2 = ("gpt-2", "gpt2", "default")
CONTROL, USER_DEFINED = 3, 4  # llama.cpp's token types
ENDS = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"]
COMPANIONS = ["tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"]


class Tokenizer:
    """`end` is the token that ends a text, where the tokenizer has one."""
    vocab_size: int
    end: Optional[int]

    def encode(self, text: str) -> list[int]:
        raise NotImplementedError

    def decode(self, ids: list[int]) -> str:
        raise NotImplementedError

    def number_of(self, token: str) -> Optional[int]:
        raise NotImplementedError

    def token_bytes(self) -> list[bytes]:
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        """Writes what transformers reads."""
        raise NotImplementedError

    def resolve_end(self, word: Optional[str]) -> Optional[int]:
        """A token or its number as the user writes it; None asks for the tokenizer's own."""
        if word == "none":
            return None
        if word is None:
            if self.end is None:
                raise UsageError("the tokenizer does not say which token ends a text: name one with --end-token, "
                                 "or --end-token none")
            return self.end
        found = self.number_of(word)
        if found is None and word.isdigit() and int(word) < self.vocab_size:
            found = int(word)
        if found is None:
            raise UsageError(f"--end-token {word}: the vocabulary of {self.vocab_size} tokens has no such token")
        return found


class JsonTokenizer(Tokenizer):
    """A tokenizer of the tokenizers library. `config` is its tokenizer_config.json."""

    def __init__(self, library_tokenizer, config: dict, parse_special: bool, companions: list[Path]):
        self.tokenizer, self.config, self.companions = library_tokenizer, config, companions
        self.tokenizer.encode_special_tokens = not parse_special
        self.vocab_size = max(self.tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        self.end = self._configured_end()

    def _configured_end(self) -> Optional[int]:
        name = self.config.get("eos_token")
        name = name.get("content") if isinstance(name, dict) else name
        candidates = [name] if name else ENDS
        return next((number for token in candidates if (number := self.number_of(token)) is not None), None)

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def number_of(self, token: str) -> Optional[int]:
        return self.tokenizer.token_to_id(token)

    def _decoders(self) -> set[str]:
        decoder = json.loads(self.tokenizer.to_str()).get("decoder") or {}
        return {part["type"] for part in decoder.get("decoders", [decoder]) if "type" in part}

    def token_bytes(self) -> list[bytes]:
        decoders = self._decoders()
        if "ByteLevel" in decoders:
            of_token = token_bytes.of_byte_level
        elif decoders & {"ByteFallback", "Metaspace", "Replace"}:
            of_token = token_bytes.of_piece
        else:
            raise UsageError(f"a tokenizer with the decoder {', '.join(decoders) or 'none'} has no table of "
                             "bytes: byte-level and SentencePiece ones have")
        added = self.tokenizer.get_added_tokens_decoder()
        result = []
        for number in range(self.vocab_size):
            token = self.tokenizer.id_to_token(number)
            if token is None:
                result.append(b"")  # a number that stands for nothing
            elif number in added:
                result.append(added[number].content.encode())
            else:
                result.append(of_token(token))
        return result

    def save(self, folder: Path) -> None:
        self.tokenizer.save(str(folder / "tokenizer.json"))
        for file in self.companions:
            if file.resolve() != (folder / file.name).resolve():
                shutil.copyfile(file, folder / file.name)
        if not (folder / "tokenizer_config.json").exists():
            text = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **self.config}, indent=2)
            (folder / "tokenizer_config.json").write_text(text + "\n")


class SentencePieceTokenizer(Tokenizer):
    def __init__(self, path: Path):
        library = package("sentencepiece", f"reading {path.name}")
        try:
            self.pieces = library.SentencePieceProcessor(model_file=str(path))
        except (RuntimeError, OSError) as error:
            raise InputError(f"{path}: no model of SentencePiece ({error})") from None
        self.path = path
        self.vocab_size = self.pieces.get_piece_size()
        self.end = self.pieces.eos_id() if self.pieces.eos_id() >= 0 else None

    def encode(self, text: str) -> list[int]:
        return self.pieces.encode(text)

    def decode(self, ids: list[int]) -> str:
        return self.pieces.decode(ids)

    def number_of(self, token: str) -> Optional[int]:
        number = self.pieces.piece_to_id(token)
        return number if self.pieces.id_to_piece(number) == token else None

    def token_bytes(self) -> list[bytes]:
        def of(number: int) -> bytes:
            piece = self.pieces.id_to_piece(number)
            literal = self.pieces.is_control(number) or self.pieces.is_unknown(number)
            return piece.encode() if literal else token_bytes.of_piece(piece)

        return [of(number) for number in range(self.vocab_size)]

    def save(self, folder: Path) -> None:
        if self.path.resolve() != (folder / "tokenizer.model").resolve():
            shutil.copyfile(self.path, folder / "tokenizer.model")


def read_json(path: Path, parse_special: bool) -> Tokenizer:
    library = package("tokenizers", f"reading {path.name}")
    try:
        tokenizer = library.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"{path}: no tokenizer of the tokenizers library ({error})") from None
    companions = [file for name in COMPANIONS if (file := path.with_name(name)).is_file()]
    config = path.with_name("tokenizer_config.json")
    settings = json.loads(config.read_text()) if config.is_file() else {}
    return JsonTokenizer(tokenizer, settings, parse_special, companions)


def splitter(library, pre: str, path: Path):
    """How text is cut before merges, which the name `pre` stands for."""
    parts = library.pre_tokenizers
    if pre in GPT2:
        return parts.ByteLevel(add_prefix_space=False)
    if pre in DIGITS_APART:
        return parts.Sequence([parts.Digits(individual_digits=True), parts.ByteLevel(add_prefix_space=False)])
    if pre in PATTERNS:
        return parts.Sequence([parts.Split(library.Regex(PATTERNS[pre]), "isolated"),
                               parts.ByteLevel(add_prefix_space=False, use_regex=False)])
    raise UsageError(f"{path}: tokenizer.ggml.pre = {pre} is not known here: give the model's tokenizer.json")


def read_gguf(path: Path, parse_special: bool) -> Tokenizer:
    library = package("tokenizers", f"the tokenizer of {path.name}")
    metadata = read_metadata(path)

    def get(name: str, default=None):
        return metadata.get(f"tokenizer.ggml.{name}", default)

    if get("model") != "gpt2":
        raise UsageError(f"{path}: tokenizer.ggml.model = {get('model')}, not byte-level BPE (gpt2): give the "
                         "model's tokenizer.json or tokenizer.model")
    tokens, merges = get("tokens", []), get("merges", [])
    kinds = get("token_type", [1] * len(tokens))
    if not tokens or len(kinds) != len(tokens) or any(merge.count(" ") != 1 for merge in merges):
        raise InputError(f"{path}: tokens, token_type and merges of tokenizer.ggml do not fit together")
    model = library.models.BPE(vocab={token: number for number, token in enumerate(tokens)},
                               merges=[tuple(merge.split(" ")) for merge in merges])
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = splitter(library, get("pre", "default"), path)
    tokenizer.decoder = library.decoders.ByteLevel()
    added = [library.AddedToken(token, special=kind == CONTROL, normalized=False)
             for token, kind in zip(tokens, kinds) if kind in (CONTROL, USER_DEFINED)]
    tokenizer.add_special_tokens([token for token in added if token.special])
    tokenizer.add_tokens([token for token in added if not token.special])
    names = {"bos": "bos_token_id", "eos": "eos_token_id", "unk": "unknown_token_id", "pad": "padding_token_id"}
    config = {f"{short}_token": tokens[number] for short, key in names.items()
              if (number := get(key)) is not None and number < len(tokens)}
    if (template := metadata.get("tokenizer.chat_template")) is not None:
        config["chat_template"] = template
    return JsonTokenizer(tokenizer, config, parse_special, [])


def open_tokenizer(path: Path, parse_special: bool = False) -> Tokenizer:
    if path.is_dir():
        found = [path / "tokenizer.json", *sorted(path.glob("*.model")), *sorted(path.glob("*.gguf"))]
        path = next((file for file in found if file.is_file()), path)
    if path.suffix == ".json":
        return read_json(path, parse_special)
    if path.suffix == ".gguf":
        return read_gguf(path, parse_special)
    if path.suffix == ".model":
        if parse_special:
            raise UsageError("SentencePiece has no --parse-special: give the model's tokenizer.json")
        return SentencePieceTokenizer(path)
    raise UsageError(f"{path}: no tokenizer.json, *.model or *.gguf")
