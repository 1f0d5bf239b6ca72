"""Check all links inside of a built site: files, and places in them.

python -m tools.check_links build/docs

Links to other sites are not followed. Prints what is missing, and exits with 1 if anything is.
"""

import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LINKS = {"a": "href", "link": "href", "img": "src", "script": "src", "iframe": "src"}


class Page(HTMLParser):
    """The links of a page, and the places that links can lead to."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the link and the ID of a tag."""
        values = dict(attrs)
        self.places |= {value for name in ("id", "name") if (value := values.get(name))}
        if link := values.get(LINKS.get(tag, "")):
            self.links.append(link)


read_page = cache(Page)


def find_broken(site: Path) -> Iterator[tuple[Path, str]]:
    """Yield each page with a link that leads nowhere, and the link."""
    for path in sorted(site.rglob("*.html")):
        for link in read_page(path).links:
            if not leads_somewhere(path, link, site):
                yield path.relative_to(site), link


def leads_somewhere(path: Path, link: str, site: Path) -> bool:
    """Whether a link leads to another site, or to a file of this one and a place in it."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = path if not parts.path else path.parent / unquote(parts.path)
    target = target.resolve()
    if not target.is_file() or site.resolve() not in target.parents:
        return False
    fragment = unquote(parts.fragment)
    return not fragment or target.suffix != ".html" or fragment in read_page(target).places


def main() -> None:
    site = Path(sys.argv[1] if len(sys.argv) > 1 else "build/docs")
    pages = len(list(site.rglob("*.html")))
    broken = list(find_broken(site))
    for page, link in broken:
        print(f"{page}: {link}")
    print(f"{pages} pages, {len(broken)} broken links")
    sys.exit(1 if broken or not pages else 0)


if __name__ == "__main__":
    main()
