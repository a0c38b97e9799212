"""Words by which people state a rule, a limit or a preference, by language: one pack each, easy to add to.

A sentence with such a word is kept word for word. Too many sentences kept cost a few tokens, one too few loses a rule:
so the packs are generous.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PACKS: Mapping[str, tuple[str, ...]] = {
    "en": (
        "must", "mustn't", "never", "always", "do not", "don't", "dont", "only", "prefer", "please use", "should",
        "shouldn't", "shall", "may not", "cannot", "can't", "avoid", "ensure", "make sure", "be sure", "at most",
        "at least", "no more than", "no longer than", "not allowed", "forbidden", "required", "require", "requires",
        "instead of", "rather than", "without", "stick to", "keep", "limit", "maximum", "minimum", "under no",
        "need to", "has to", "have to", "remember", "important", "from now on", "no need", "stop using", "i want",
        "i'd like", "i would like", "i like", "i hate", "i dislike", "leave", "use", "exactly", "strictly",
    ),
    "de": (
        "muss", "müssen", "musst", "müsst", "darf", "dürfen", "darfst", "nie", "niemals", "immer", "nicht", "kein",
        "keine", "keinen", "nur", "bevorzuge", "bevorzugt", "lieber", "bitte", "soll", "sollen", "sollst", "sollte",
        "vermeide", "vermeiden", "höchstens", "mindestens", "maximal", "stets", "verboten", "ausschließlich", "statt",
        "ohne", "achte", "merk dir", "verwende", "benutze", "nutze", "ab jetzt",
    ),
    "fr": (
        "doit", "doivent", "dois", "devez", "il faut", "jamais", "toujours", "ne pas", "n'utilise", "seulement",
        "uniquement", "préfère", "préférez", "évite", "évitez", "au plus", "au moins", "interdit", "veuillez", "sans",
        "s'il te plaît", "s'il vous plaît",
    ),
    "es": (
        "debe", "deben", "debes", "hay que", "tiene que", "nunca", "siempre", "no uses", "no use", "no hagas", "solo",
        "sólo", "solamente", "prefiero", "prefiere", "evita", "evite", "como máximo", "al menos", "prohibido",
        "por favor", "sin",
    ),
    "pt": (
        "deve", "devem", "nunca", "sempre", "não use", "não", "apenas", "somente", "prefiro", "prefira", "evite",
        "no máximo", "pelo menos", "proibido", "por favor",
    ),
    "it": (
        "deve", "devono", "devi", "mai", "sempre", "non", "solo", "soltanto", "preferisco", "preferisci", "evita",
        "al massimo", "almeno", "vietato", "per favore",
    ),
    "nl": ("moet", "moeten", "nooit", "altijd", "niet", "alleen", "liever", "vermijd", "maximaal", "minstens", "graag"),
    "pl": ("musi", "muszą", "nigdy", "zawsze", "nie", "tylko", "wolę", "unikaj", "maksymalnie", "proszę"),
    "ru": (
        "должен", "должна", "должно", "должны", "нужно", "надо", "никогда", "всегда", "нельзя", "не", "только",
        "предпочитаю", "лучше", "избегай", "избегайте", "максимум", "минимум", "запрещено", "пожалуйста",
    ),
    "tr": ("gerekir", "zorunlu", "asla", "her zaman", "sadece", "yalnızca", "tercih", "lütfen", "kaçın", "en fazla"),
    "vi": ("phải", "không bao giờ", "luôn", "không được", "đừng", "chỉ", "ưu tiên", "tránh", "vui lòng", "tối đa"),
}  # fmt: skip

UNSPACED: Mapping[str, tuple[str, ...]] = {
    "zh": (
        "必须", "必須", "不要", "不能", "不得", "不可", "不许", "不准", "别", "總是", "总是", "始终", "永远", "永遠", "从不",
        "絕不", "绝不", "只", "仅", "僅", "请", "請", "务必", "務必", "禁止", "优先", "優先", "尽量", "避免", "最好", "应该",
        "應該", "至少", "最多", "不超过", "需要", "一定", "偏好", "喜欢", "以后",
    ),
    "ja": (
        "必ず", "絶対", "しないで", "てはいけ", "なければ", "決して", "常に", "いつも", "だけ", "のみ", "ください", "禁止",
        "避け", "優先", "べき", "以内", "以上", "以下", "使って", "使わない",
    ),
    "ko": ("반드시", "절대", "하지 마", "하지마", "항상", "만 ", "오직", "금지", "피하", "우선", "해야", "주세요", "이내", "이하", "이상"),
    "th": ("ต้อง", "ห้าม", "อย่า", "เสมอ", "เท่านั้น", "กรุณา"),
    "ar": ("يجب", "لا ", "أبدا", "دائما", "فقط", "ممنوع", "من فضلك"),
    "hi": ("चाहिए", "कभी नहीं", "हमेशा", "केवल", "सिर्फ", "मत ", "कृपया"),
}  # fmt: skip

_SPACED = re.compile(
    r"(?<![\w])(?:"
    + "|".join(sorted({re.escape(w) for pack in PACKS.values() for w in pack}, key=len, reverse=True))
    + r")(?![\w])",
    re.IGNORECASE,
)
_INSIDE = re.compile("|".join(re.escape(word) for pack in UNSPACED.values() for word in pack))


def states_a_rule(sentence: str) -> bool:
    """Whether the sentence states a rule, a limit or a preference, in any language there is a pack for."""
    straight = sentence.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return bool(_SPACED.search(straight) or _INSIDE.search(straight))
