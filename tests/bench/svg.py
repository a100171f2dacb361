"""What the pictures share: their colours, elements, and the card that they are on."""

from collections.abc import Iterable

INK, GREY, PALE, BLUE, RED, GREEN = "#24292f", "#6e7781", "#eaeef2", "#0969da", "#cf222e", "#1a7f37"


def card(width: int, height: int, left: int, title: str, body: Iterable[str]) -> str:
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="ui-monospace, monospace" font-size="12">',
            element("rect", width=width, height=height, rx=8, fill="#ffffff", stroke="#d0d7de"),
            element("text", title, x=left, y=30, fill=INK, font_weight="bold"),
            *body,
            "</svg>\n",
        )
    )


def element(name: str, content: str = "", /, **attributes: float | str) -> str:
    """An element with its attributes in order, `_` for `-`, and floats to a tenth."""
    shown = (f"{v:.1f}" if isinstance(v, float) else v for v in attributes.values())
    pairs = (f'{key.replace("_", "-")}="{v}"' for key, v in zip(attributes, shown, strict=True))
    opening = " ".join((name, *pairs))
    return f"<{opening}>{content}</{name}>" if content else f"<{opening}/>"


def note(content: str, x: float, y: float, **attributes: float | str) -> str:
    """Small grey text."""
    return element("text", content, x=x, y=y, fill=GREY, font_size=10, **attributes)
