"""Fixed sentences that top up the reference sample of a generation.

The contract's semantic score compares a cosine with those of unrelated texts; a small corpus has
too few passages of its own to tell. The sentences are part of the stored format: never edit them.
"""

from __future__ import annotations

_SENTENCES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (
        (
            "The history of {} is longer than most people think.",
            "A short guide to {} for beginners.",
            "How much does {} cost in a usual year?",
            "Last week the council voted on a report about {}.",
            "Three common mistakes with {} and how to avoid them.",
            "She wrote a letter about {} to her brother.",
            "Researchers measured {} under controlled conditions.",
            "The museum opened a new room devoted to {}.",
        ),
        (
            "bread baking",
            "river ferries",
            "solar panels",
            "violin strings",
            "tax returns",
            "mountain weather",
            "database backups",
            "tulip bulbs",
            "knee injuries",
            "railway bridges",
        ),
    ),
    (
        (
            "Die Geschichte von {} ist länger, als viele denken.",
            "Eine kurze Einführung in {} für Anfänger.",
            "Wie viel kosten {} in einem gewöhnlichen Jahr?",
            "Letzte Woche stimmte der Rat über einen Bericht zu {} ab.",
            "Drei häufige Fehler bei {} und wie man sie vermeidet.",
            "Sie schrieb ihrem Bruder einen Brief über {}.",
            "Forscher untersuchten {} unter kontrollierten Bedingungen.",
            "Das Museum eröffnete einen neuen Raum über {}.",
        ),
        (
            "Brotrezepte",
            "Flussfähren",
            "Solaranlagen",
            "Geigensaiten",
            "Steuererklärungen",
            "Bergwetterlagen",
            "Datensicherungen",
            "Tulpenzwiebeln",
            "Knieverletzungen",
            "Eisenbahnbrücken",
        ),
    ),
    (
        (
            "L'histoire du sujet « {} » est plus longue qu'on ne le croit.",
            "Petit guide pour débutants : {}.",
            "Combien coûtent {} au cours d'une année ordinaire ?",
            "La semaine dernière, le conseil a voté un rapport sur {}.",
            "Trois erreurs fréquentes avec {} et comment les éviter.",
            "Elle a écrit à son frère une lettre sur {}.",
            "Des chercheurs ont étudié {} dans des conditions contrôlées.",
            "Le musée a ouvert une nouvelle salle consacrée au thème : {}.",
        ),
        (
            "les pains au levain",
            "les bacs fluviaux",
            "les panneaux solaires",
            "les cordes de violon",
            "les déclarations d'impôts",
            "les orages de montagne",
            "les sauvegardes de données",
            "les bulbes de tulipe",
            "les blessures au genou",
            "les ponts ferroviaires",
        ),
    ),
    (
        (
            "{}的历史比大多数人想象的要长。",
            "{}入门简明指南。",
            "{}通常一年要花多少钱？",
            "上周，市议会就一份关于{}的报告进行了表决。",
            "关于{}的三个常见错误以及如何避免。",
            "她给哥哥写了一封关于{}的信。",
            "研究人员在受控条件下测量了{}。",
            "博物馆新开了一个以{}为主题的展厅。",
        ),
        (
            "烤面包",
            "内河渡轮",
            "太阳能电池板",
            "小提琴琴弦",
            "纳税申报",
            "山区天气",
            "数据库备份",
            "郁金香球茎",
            "膝盖损伤",
            "铁路桥梁",
        ),
    ),
)


def reference_sentences() -> tuple[str, ...]:
    """Return 320 distinct sentences, always the same, in the same order.

    Languages alternate (en, de, fr, zh), so that any head of the tuple is spread over them.
    """
    columns = [
        [template.format(subject) for subject in subjects for template in templates]
        for templates, subjects in _SENTENCES
    ]
    return tuple(sentence for row in zip(*columns, strict=True) for sentence in row)
