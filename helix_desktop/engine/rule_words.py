"""Words with which people state a rule, a limit or a preference. Each language has a list of its own.

A sentence with such a word is kept word for word. `RULES` are words of demands. `WISHES` also occur
in other sentences, so they come second if there is little room. Both are generous: a sentence too
many costs a few tokens, and a sentence too few loses a rule.
"""

import re
from collections.abc import Mapping

Packs = Mapping[str, tuple[str, ...]]

RULES: Packs = {
    "en": (
        "must", "mustn't", "never", "always", "do not", "don't", "dont", "only", "prefer", "please use", "shall",
        "shouldn't", "should not", "may not", "avoid", "make sure", "ensure", "at most", "at least", "no more than",
        "no longer than", "no less than", "not allowed", "forbidden", "required", "instead of", "rather than",
        "stick to", "under no circumstances", "from now on", "stop using", "remember to", "strictly", "maximum", "minimum",
    ),
    "de": (
        "muss", "müssen", "musst", "müsst", "darf", "dürfen", "darfst", "nie", "niemals", "immer", "nur", "kein", "keine",
        "keinen", "bevorzuge", "bevorzugt", "lieber", "bitte verwende", "bitte nutze", "bitte benutze", "sollst", "soll",
        "sollen", "sollte", "vermeide", "vermeiden", "höchstens", "mindestens", "maximal", "stets", "verboten",
        "ausschließlich", "auf keinen fall", "ab jetzt", "merk dir",
    ),
    "fr": (
        "doit", "doivent", "dois", "devez", "il faut", "jamais", "toujours", "ne pas", "seulement", "uniquement", "préfère",
        "préférez", "évite", "évitez", "au plus", "au moins", "interdit", "interdite", "obligatoire", "n'utilise",
        "n'utilisez", "désormais",
    ),
    "es": (
        "debe", "deben", "debes", "hay que", "tiene que", "tienes que", "nunca", "siempre", "no uses", "no use", "no hagas",
        "solo", "sólo", "solamente", "únicamente", "prefiero", "prefiere", "evita", "evite", "como máximo", "al menos",
        "prohibido", "a partir de ahora",
    ),
    "pt": (
        "deve", "devem", "nunca", "jamais", "sempre", "não use", "não faça", "apenas", "somente", "prefiro", "prefira",
        "evite", "no máximo", "pelo menos", "proibido", "obrigatório",
    ),
    "it": (
        "deve", "devono", "devi", "mai", "sempre", "solo", "soltanto", "preferisco", "preferisci", "evita", "evitare",
        "al massimo", "almeno", "vietato", "non usare", "obbligatorio",
    ),
    "nl": ("moet", "moeten", "nooit", "altijd", "alleen", "liever", "vermijd", "maximaal", "minstens", "verboden"),
    "pl": ("musi", "muszą", "musisz", "nigdy", "zawsze", "tylko", "wolę", "unikaj", "maksymalnie", "zabronione"),
    "ru": (
        "должен", "должна", "должно", "должны", "нужно", "надо", "никогда", "всегда", "нельзя", "только", "предпочитаю",
        "избегай", "избегайте", "максимум", "минимум", "запрещено", "обязательно",
    ),
    "tr": ("zorunlu", "gerekir", "gerekiyor", "asla", "her zaman", "sadece", "yalnızca", "tercih", "kaçın", "en fazla", "yasak"),
    "vi": ("phải", "không bao giờ", "luôn", "không được", "đừng", "chỉ", "ưu tiên", "tránh", "tối đa", "cấm"),
}  # fmt: skip

RULES_INSIDE: Packs = {  # Matched anywhere, as these languages do not mark where words end.
    "zh": (
        "必须", "必須", "不要", "不能", "不得", "不可", "不许", "不許", "不准", "总是", "總是", "始终", "始終", "永远", "永遠",
        "从不", "從不", "绝不", "絕不", "只能", "只用", "只要", "仅", "僅", "请使用", "請使用", "请用", "請用", "务必", "務必",
        "禁止", "优先", "優先", "尽量", "盡量", "避免", "应该", "應該", "至少", "最多", "不超过", "不超過", "一定要", "偏好", "以后",
    ),
    "ja": (
        "必ず", "絶対", "しないで", "てはいけ", "てはなら", "なければ", "決して", "常に", "いつも", "だけ", "のみ", "禁止", "避け",
        "優先", "べき", "以内", "以上", "以下", "使ってください", "使わない",
    ),
    "ko": ("반드시", "절대", "하지 마", "하지마", "항상", "오직", "금지", "피하", "우선", "해야", "이내", "이하", "이상"),
    "th": ("ต้อง", "ห้าม", "อย่า", "เสมอ", "เท่านั้น"),
    "ar": ("يجب", "أبدا", "دائما", "فقط", "ممنوع"),
    "hi": ("चाहिए", "कभी नहीं", "हमेशा", "केवल", "सिर्फ"),
}  # fmt: skip

WISHES: Packs = {
    "en": (
        "should", "can't", "cannot", "need to", "needs to", "have to", "has to", "without", "keep", "leave", "use",
        "important", "i want", "i'd like", "i would like", "i like", "i hate", "i dislike", "remember", "limit", "exactly",
        "require", "requires", "no need", "be sure",
    ),
    "de": ("nicht", "bitte", "statt", "ohne", "achte", "verwende", "benutze", "nutze", "ich will", "ich möchte", "wichtig"),
    "fr": ("sans", "veuillez", "s'il te plaît", "s'il vous plaît", "je veux", "je voudrais"),
    "es": ("sin", "por favor", "quiero", "quisiera"),
    "pt": ("não", "sem", "por favor", "quero"),
    "it": ("non", "senza", "per favore", "voglio", "vorrei"),
    "nl": ("niet", "graag", "zonder", "ik wil"),
    "pl": ("nie", "proszę", "bez", "chcę"),
    "ru": ("не", "лучше", "пожалуйста", "без", "хочу"),
    "tr": ("lütfen", "istiyorum"),
    "vi": ("vui lòng", "không", "tôi muốn"),
}  # fmt: skip

WISHES_INSIDE: Packs = {
    "zh": ("请", "請", "别", "別", "只", "需要", "最好", "喜欢", "喜歡", "希望", "想要"),
    "ja": ("ください", "ほしい", "欲しい", "使って"),
    "ko": ("주세요", "원해", "싶어"),
    "th": ("กรุณา", "อยาก"),
    "ar": ("من فضلك", "لا ", "أريد"),
    "hi": ("कृपया", "मत "),
}  # fmt: skip


def _whole_word_pattern(packs: Packs) -> re.Pattern[str]:
    words = sorted({re.escape(word) for pack in packs.values() for word in pack}, key=len, reverse=True)
    return re.compile(r"(?<!\w)(?:" + "|".join(words) + r")(?!\w)", re.IGNORECASE)


def _substring_pattern(packs: Packs) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(word) for pack in packs.values() for word in pack))


_RULES, _RULES_INSIDE = _whole_word_pattern(RULES), _substring_pattern(RULES_INSIDE)
_WISHES, _WISHES_INSIDE = _whole_word_pattern(WISHES), _substring_pattern(WISHES_INSIDE)


def states_a_rule(sentence: str) -> bool:
    """Whether the sentence demands something, in any supported language."""
    straight = _straighten_quotes(sentence)
    return bool(_RULES.search(straight) or _RULES_INSIDE.search(straight))


def states_a_wish(sentence: str) -> bool:
    """Whether the sentence may state a limit or preference, by words that also mean other things."""
    straight = _straighten_quotes(sentence)
    return bool(_WISHES.search(straight) or _WISHES_INSIDE.search(straight))


def _straighten_quotes(sentence: str) -> str:
    return sentence.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
