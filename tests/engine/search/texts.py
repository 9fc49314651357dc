"""A corpus written by a fixed seed: five languages, long and short items, ties, and a flood."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.engine.search.building import Library

_SPACED = {
    "en": "server token deploy login error index search shard cluster passage vector ranking "
    "timeout network password rotate certificate backup restore database migration queue",
    "de": "Server Anmeldung Fehler Verzeichnis Suche Haus Häuser Schiff Datenbank Netzwerk "
    "Passwort Zertifikat Sicherung Wiederherstellung Schlange Rechner größer Straße",
    "fr": "serveur erreur connexion recherche base données réseau l'index mot passe certificat "
    "sauvegarde d'équipe restauration file grappe été élève déployer",
    "zh": "服务器 登录 错误 搜索 数据库 网络 密码 证书 备份 恢复",
    "und": "zzyx qwerty ERR_CONN_RESET v2.60.0 kubectl foo bar 🙂 naïve Ωmega",
}
WORDS: dict[str, Sequence[str]] = {name: words.split() for name, words in _SPACED.items()}

QUERIES = (
    "server",
    "deploy server token",
    "how do I rotate a certificate and restore the database backup",
    "Anmeldung Fehler Passwort",
    "Häuser am Schiff",
    "connexion au serveur d'équipe",
    "服务器 登录 错误",
    "数据库备份恢复",
    "ERR_CONN_RESET kubectl",
    "server serveur Server 服务器",
    "the and of to",
    "flood",
    "nothing that occurs anywhere",
    '"(unbalanced AND [quotes* ~ \\ /',
    "🙂",
)


def _text(rng: random.Random, language: str, words: int) -> str:
    vocabulary = WORDS[language]
    picked = [
        vocabulary[min(int(rng.expovariate(0.25)), len(vocabulary) - 1)] for _ in range(words)
    ]
    if language == "zh":
        return "".join(word + ("。" if at % 6 == 5 else "") for at, word in enumerate(picked))
    sentences = [" ".join(picked[at : at + 9]) for at in range(0, len(picked), 9)]
    return ".\r\n".join(sentences) + "."


def corpus(seed: int, count: int, prefix: str = "item") -> dict[str, list[tuple[str, str, str]]]:
    """Return (item id, title, content) by language."""
    rng = random.Random(seed)
    languages = list(WORDS)
    found: dict[str, list[tuple[str, str, str]]] = {language: [] for language in languages}
    for at in range(count):
        language = languages[at % len(languages)]
        words = rng.choice([3, 8, 20, 60, 200])
        title = _text(rng, language, 2)[:60].strip()
        found[language].append((f"{prefix}-{at:03d}", title, _text(rng, language, words)))
    for at in range(12):
        found["en"].append((f"{prefix}-tie-{11 - at:02d}", "server", "deploy the server token"))
    return found


def fill(library: Library, base: str, seed: int, count: int, prefix: str = "item") -> None:
    """Add and publish a corpus in a base."""
    for language, texts in corpus(seed, count, prefix).items():
        library.add(base, texts, language=language)


FLOOD = " ".join(
    "the server flood never ends, and every part of it says server." for _ in range(90)
)
