"""Attacks as data: what is sent, and what must come back. `python -m tests.hostile.attacks` prints.

Each goes through the whole ASGI application, guard and doors, over a real store.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

LONGEST_QUERY = 4000
BODY_LIMIT = 65_536
ITEM = "seen"


@dataclass(frozen=True, slots=True)
class Attack:
    """One request.

    Attributes:
        name: what is tried.
        status: the only status it may get, or several.
        code: the contract's error code in the body, or "" where the body has none.
        method, path, headers, body: of the request; `token` in a header stands for a valid one.
    """

    name: str
    status: tuple[int, ...]
    code: str = ""
    method: str = "POST"
    path: str = "/v1/search"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


INVALID = "knowledge_invalid_request"
REQUIRED = "knowledge_query_required"
GONE = "knowledge_resource_unavailable"
NOBODY = "knowledge_unauthorized"


def _json(value: object) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _search(name: str, status: int, code: str = "", **arguments: Any) -> Attack:
    return Attack(name, (status,), code, body=_json(arguments))


def _raw(name: str, status: int, body: bytes, code: str = INVALID, **more: Any) -> Attack:
    return Attack(name, (status,), code, body=body, **more)


def _bodies() -> Iterator[Attack]:
    yield _raw("no body", 400, b"")
    yield _raw("half an object", 400, b'{"query": "a"')
    yield _raw("an array", 400, b'["query"]')
    yield _raw("a number", 400, b"7")
    yield _raw("null", 400, b"null")
    yield _raw("two objects", 400, b'{"query":"a"}{"query":"b"}')
    yield _raw("a key twice", 400, b'{"query":"a","query":"b"}')
    yield _raw("a key twice, escaped once", 400, b'{"query":"a","\\u0071uery":"b"}')
    yield _raw("NaN", 400, b'{"query":"a","alpha":NaN}')
    yield _raw("infinity", 400, b'{"query":"a","alpha":-Infinity}')
    yield _raw("a number of 5,000 digits", 400, b'{"query":"a","max_results":' + b"9" * 5000 + b"}")
    yield _raw("a number that overflows", 400, b'{"query":"a","alpha":1e999}')
    yield _raw("60,000 brackets", 400, b'{"query":' + b"[" * 60_000)
    yield _raw("objects 10,000 deep", 400, b'{"a":' * 10_000 + b"1" + b"}" * 10_000)
    yield _raw("not UTF-8", 400, b'{"query":"\xff\xfe"}')
    yield _raw("UTF-16", 400, '{"query":"a"}'.encode("utf-16"))
    yield _raw("gzip that says it is JSON", 400, b"\x1f\x8b\x08\x00" + b"\0" * 64)
    yield _raw("more than may be sent", 413, b'{"query":"' + b"a" * BODY_LIMIT + b'"}', "")
    yield _raw("a byte order mark", 400, b"\xef\xbb\xbf" + b'{"query":"a"}')


def _arguments() -> Iterator[Attack]:
    yield _search("no argument", 400, REQUIRED)
    yield _search("an unknown argument", 400, INVALID, query="a", admin=True)
    yield _search("a prototype", 400, INVALID, query="a", __proto__={"operator": True})
    yield _search("a principal of one's own", 400, INVALID, query="a", principal="operator")
    yield _search("an object for a query", 400, INVALID, query={"$ne": ""})
    yield _search("a list for a query", 400, INVALID, query=["a"])
    yield _search("true for a number", 400, INVALID, query="a", max_results=True)
    yield _search("a number as text", 200, query="a", max_results="5")
    yield _search("no results wanted", 400, INVALID, query="a", max_results=0)
    yield _search("a billion results wanted", 400, INVALID, query="a", max_results=10**9)
    yield _search("fewer than none", 400, INVALID, query="a", max_results=-1)
    yield _search("alpha beyond 1", 200, query="a", alpha=1.0000001)
    yield _search("an unknown mode", 200, query="a", mode="sql")
    yield _search("a mode with a null", 200, query="a", mode="lexical\0")
    yield _search("a query too long by one", 400, INVALID, query="a" * (LONGEST_QUERY + 1))
    yield _search("an empty query", 400, REQUIRED, query="")
    yield _search("a query of spaces", 400, REQUIRED, query=" \t\n\u2003 ")
    yield _search("a query and an item", 400, INVALID, query="a", knowledge_item_id=ITEM)
    yield _search("a base that is a path", 404, GONE, query="a", knowledge_base_id="../../etc")
    yield _search("a base with a null", 400, INVALID, query="a", knowledge_base_id="open\0")
    yield _search("a base by wildcard", 404, GONE, query="a", knowledge_base_id="*")
    yield _search("a base of another", 404, GONE, query="a", knowledge_base_id="vault")
    yield _search("SQL for a base", 404, GONE, query="a", knowledge_base_id="' OR 1=1 --")


LUCENE = (
    "*:*", "*", "?", "[* TO *]", "{a TO z}", "_exists_:text", "text_en:marmots", "/.*/", "/(a+)+$/",
    "marmots~2", '"marmots vault"~1000', "marmots^1e38", "+marmots -marmots", "NOT marmots",
    "marmots AND (", "((((((((", '"', "\\", "\\u0000", "a:b:c:d", "&& || !", "doc_id:1",
)  # fmt: skip


def _texts() -> Iterator[Attack]:
    for query in LUCENE:
        yield _search(f"Lucene syntax {query}", 200, query=query)
    yield _search("a null in a query", 200, query="marmots\0vault")
    yield _search("a lone surrogate", 200, query="marmots \ud800 \udfff")
    yield _search("4,000 emoji", 200, query="\U0001f600" * 4000)
    yield _search("combining marks", 200, query="a" + "\u0301" * 3999)
    yield _search("text from right to left", 200, query="\u202emarmots\u202c \u2066vault\u2069")
    yield _search("look-alikes", 200, query="m\u0430rm\u043ets")
    yield _search("controls", 200, query="".join(map(chr, range(1, 32))) + "marmots")
    yield _search("noncharacters", 200, query="\ufffe\uffff\U0010ffff marmots")
    yield _search("1,000 distinct terms", 200, query=" ".join(map(_word, range(1000))))
    yield _search("one word of 4,000 letters", 200, query="q" * 4000)
    yield _search("one identifier of 4,000 signs", 200, query="a_" * 2000)
    yield _search("4,000 Chinese characters", 200, query="\u670d\u52a1" * 2000)
    yield _search("a German word of 4,000 letters", 200, query="donaudampfschiff" * 250)
    yield _search("ligatures that grow", 200, query="\ufdfa" * 4000)
    yield _search("punctuation only", 200, query="?!.,;:-_()[]{}")
    yield _search("stop words only", 200, query="the and of to")
    yield _search("a header in a query", 200, query="a\r\nSet-Cookie: x=1")
    yield _search("HTML", 200, query="<script>alert(1)</script>")
    yield _search("a format string", 200, query="%s%n{0}{__class__}${jndi:ldap://x}")


def _word(number: int) -> str:
    return f"{number:x}"


def _read(name: str, path: str, status: tuple[int, ...], code: str = GONE) -> Attack:
    return Attack(name, status, code, "GET", f"/v1/items/{path}")


def _paths() -> Iterator[Attack]:
    yield _read("a path as an item", "..%2f..%2fstore", (404,))
    yield _read("a path, escaped twice", "%252e%252e%252fstore", (404,))
    yield _read("two dots", "%2e%2e", (400,), INVALID)
    yield _read("an absolute path", "%2fetc%2fpasswd", (404,))
    yield _read("a null", f"{ITEM}%00", (404, 400), "")
    yield _read("overlong UTF-8", "%c0%ae%c0%ae", (400, 404), "")
    yield _read("half an escape", "%", (400, 404), "")
    yield _read("an id of 10,000 letters", "a" * 10_000, (400, 404), "")
    yield _read("an item of another", "hidden", (404,))
    yield _read("a draft", "draft", (404,))
    yield _read("a draft by its revision", "draft/revisions/r1", (404,))
    yield _read("a revision of another item", f"{ITEM}/revisions/r9", (404,))
    yield _read("an offset below nothing", f"{ITEM}?offset=-1", (400,), INVALID)
    yield _read("an offset of 30 digits", f"{ITEM}?offset={'9' * 30}", (400,), INVALID)
    yield _read("an offset in other digits", f"{ITEM}?offset=%D9%A1", (400,), INVALID)
    yield _read("an offset with an underscore", f"{ITEM}?offset=1_0", (400,), INVALID)
    yield _read("a window of everything", f"{ITEM}?limit_chars=999999999", (400,), INVALID)
    yield _read("a parameter twice", f"{ITEM}?offset=0&offset=1", (400,), INVALID)
    yield _read("an unknown parameter", f"{ITEM}?debug=1", (400,), INVALID)
    yield Attack("a file of the store", (404,), INVALID, "GET", "/store/items/_delta_log")
    yield Attack("above the root", (404,), INVALID, "GET", "/../../etc/passwd")
    yield Attack("a search by GET", (405,), INVALID, "GET", "/v1/search")
    yield Attack("deleting an item", (405,), INVALID, "DELETE", f"/v1/items/{ITEM}")
    yield Attack("an unknown method", (405,), INVALID, "BREW", "/v1/search")
    yield Attack("a stream that stays open", (405,), INVALID, "GET", "/mcp")
    yield Attack("an explanation without its scope", (403,), "knowledge_scope_required",
                 path="/v1/explain", body=b'{"query":"a"}')  # fmt: skip


def _unsigned(header: Mapping[str, Any], claims: Mapping[str, Any]) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(_json(value)).rstrip(b"=").decode()

    return f"{part(header)}.{part(claims)}."


CLAIMS = {"sub": "operator", "aud": "kb", "iss": "https://x", "exp": 9_999_999_999, "scope": "*"}

CREDENTIALS = {
    "no credential": "",
    "an empty bearer": "Bearer ",
    "a bearer that is wrong": "Bearer wrong",
    "another scheme": "Basic b3BlcmF0b3I6eA==",
    "two tokens": "Bearer a, Bearer b",
    "a token with a space": "Bearer a b",
    "a token of 9,000 letters": "Bearer " + "a" * 9000,
    "a token that signs nothing": "Bearer " + _unsigned({"alg": "none"}, CLAIMS),
    "a token without an algorithm": "Bearer " + _unsigned({}, CLAIMS),
    "a token with a key of its own": "Bearer "
    + _unsigned({"alg": "RS256", "jwk": {"kty": "RSA", "n": "AQ", "e": "AQAB"}}, CLAIMS),
    "a token that names a key server": "Bearer "
    + _unsigned({"alg": "RS256", "jku": "http://169.254.169.254/"}, CLAIMS),
    "a token whose header is a list": "Bearer W10.e30.",
    "a token of three dots": "Bearer ...",
    "the hash of a token": "Bearer sha256:" + "0" * 64,
}


def _callers() -> Iterator[Attack]:
    for name, value in CREDENTIALS.items():
        headers = {"authorization": value} if value else {}
        for path in ("/v1/search", "/mcp"):
            yield Attack(
                f"{name} at {path}", (401,), NOBODY, path=path, headers={"x": "", **headers},
                body=b'{"query":"a"}',
            )  # fmt: skip
    token = {"authorization": "token"}
    body = b'{"query":"a"}'
    yield Attack(
        "a foreign Host", (421,), INVALID, headers={**token, "host": "evil.example"}, body=body
    )
    yield Attack("a foreign Origin", (403,), INVALID,
                 headers={**token, "origin": "https://evil.example"}, body=body)  # fmt: skip
    yield Attack(
        "no origin at all", (403,), INVALID, headers={**token, "origin": "null"}, body=body
    )


def _call(arguments: object, name: object = "search_knowledge") -> bytes:
    parameters = {"name": name, "arguments": arguments}
    return _json({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": parameters})


def _protocol() -> Iterator[Attack]:
    for name, status, body in (
        ("a batch", 400, b"[" + _call({"query": "a"}) + b"]"),
        ("a key twice in arguments", 400, _call({"query": "a"})[:-3] + b',"query":"b"}}}'),
        ("deep JSON", 400, b'{"jsonrpc":' + b"[" * 60_000),
        ("a number of 5,000 digits", 400, b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b"}"),
        ("not UTF-8", 400, b'{"jsonrpc":"\xff"}'),
        ("no object", 400, b"7"),
        ("no method", 400, b'{"jsonrpc":"2.0","id":1}'),
    ):
        yield Attack(f"{name}, over MCP", (status,), body=body, path="/mcp")
    for name, body in (
        ("an unknown tool", _call({"query": "a"}, "shell")),
        ("a list of arguments", _call([])),
        ("a tool that is a number", _call({"query": "a"}, 7)),
        ("an unknown method", _json({"jsonrpc": "2.0", "id": 1, "method": "resources/read"})),
    ):
        yield Attack(f"{name}, over MCP", (200, 400, 404), body=body, path="/mcp")
    for name, arguments in (
        ("no arguments", {}),
        ("an unknown argument", {"query": "a", "admin": True}),
        ("a hidden item", {"knowledge_item_id": "hidden"}),
        ("a draft", {"knowledge_item_id": "draft", "knowledge_revision_id": "r1"}),
        ("a path", {"knowledge_item_id": "../../etc/passwd"}),
    ):
        code = {"no arguments": REQUIRED, "an unknown argument": INVALID}.get(name, GONE)
        yield Attack(f"{name}, over MCP", (200,), code, body=_call(arguments), path="/mcp")


def attacks() -> tuple[Attack, ...]:
    """Return all attacks, each name once."""
    groups = (_bodies(), _arguments(), _texts(), _paths(), _callers(), _protocol())
    return tuple(attack for group in groups for attack in group)


def main() -> None:
    """Print the table."""
    rows = []
    for number, attack in enumerate(attacks(), start=1):
        told = "/".join(map(str, attack.status))
        asked = f"{attack.method:6} {attack.path[:24]:24}"
        rows.append(f"{number:3} {asked} {attack.name[:48]:48} {told} {attack.code}")
    sys.stdout.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
