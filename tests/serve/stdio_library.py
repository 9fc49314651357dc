"""A program for tests: serves the reference library over stdio, or bridges to a URL.

Usage: python -m tests.serve.stdio_library [URL]. The bridge takes its token from OCTAVO_TOKEN.
"""

from __future__ import annotations

import asyncio
import os
import sys

from engine.authorization import ANONYMOUS
from serve.mcp_door import serve_bridge, serve_stdio
from tests.serve.library import Library

if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(serve_bridge(sys.argv[1], os.environ.get("OCTAVO_TOKEN")))
    else:
        asyncio.run(serve_stdio(Library(texts={"ü": "umlaut 漢字"}), ANONYMOUS))
