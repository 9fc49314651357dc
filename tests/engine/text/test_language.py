"""Language detection."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.index.languages import FIELDS
from engine.text.language import LANGUAGES, UNDETERMINED, detect, language_detector

SAMPLES = {
    "en": "How many points did the defence give up last season?",
    "de": "Wie viele Punkte gab die Verteidigung der Panthers ab?",
    "fr": "Combien de points la défense a-t-elle concédés cette saison ?",
    "zh": "黑豹队的防守在本赛季丢了多少分？",
    "ja": "昨シーズン、守備陣は何点を許しましたか。",
    "ko": "지난 시즌 수비진은 몇 점을 내주었습니까?",
    "es": "¿Cuántos puntos permitió la defensa la temporada pasada?",
    "it": "Quanti punti ha concesso la difesa nella scorsa stagione?",
    "nl": "Hoeveel punten gaf de verdediging vorig seizoen weg?",
    "pl": "Ile punktów straciła obrona w zeszłym sezonie?",
    "pt": "Quantos pontos a defesa cedeu na temporada passada?",
    "ru": "Сколько очков пропустила защита в прошлом сезоне?",
    "uk": "Скільки очок пропустив захист у минулому сезоні?",
}


@pytest.mark.parametrize("code", LANGUAGES)
def test_a_sentence_of_each_language_is_recognised(code: str) -> None:
    assert detect(SAMPLES[code]) == code


@pytest.mark.parametrize("text", ["", " \n", "12.5 % + 3", "---", "👍🏽"])
def test_a_text_without_letters_is_undetermined(text: str) -> None:
    assert detect(text) == UNDETERMINED


def test_only_a_bounded_head_of_the_content_decides() -> None:
    assert detect(SAMPLES["de"] * 30 + SAMPLES["en"] * 3_000) == "de"


def test_code_and_addresses_in_front_do_not_decide() -> None:
    code = "```python\nfor name, value in the_items_of(this_mapping): print(name, value)\n```\n"
    links = "https://www.example.com/how/to/read/this/page user@example.com /usr/share/doc\n"
    assert detect(code * 5 + links * 5 + SAMPLES["de"]) == "de"


def test_a_text_of_nothing_but_code_still_has_a_language() -> None:
    assert detect("`the quick brown fox jumps over the lazy dog`") == "en"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("请使用 kubectl 重启 Kubernetes 集群。", "zh"),
        ("サーバーで kubectl apply を実行してください。", "ja"),
        ("클러스터에서 kubectl apply 명령을 실행하십시오.", "ko"),
        ("Запустите команду kubectl apply на сервере.", "ru"),
        ("Der Befehl restart startet den Dienst sofort wieder neu.", "de"),
    ],
)
def test_a_mixture_is_in_the_language_of_its_sentence(text: str, code: str) -> None:
    assert detect(text) == code


def test_every_language_with_a_field_can_be_detected() -> None:
    assert {field.language for field in FIELDS if field.language} == set(LANGUAGES)


def test_the_title_helps_a_content_without_letters() -> None:
    assert detect("1 2 3", SAMPLES["fr"]) == "fr"


def test_a_process_has_one_detector() -> None:
    assert language_detector() is language_detector()


def test_importing_the_module_builds_no_detector() -> None:
    code = "from engine.text.language import language_detector as d; print(d.cache_info().currsize)"
    root = Path(__file__).parents[3]
    made = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert made.stdout.strip() == "0"
