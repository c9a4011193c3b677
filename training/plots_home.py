"""Plots about growing up: learning, fear, a quarrel."""

from __future__ import annotations

from beats import Story, Wanted, close, finish, meeting, opening, set_stage, tells, thanks, weather
from grammar import Scene
from lexicon import OBJECTS, PLACES
from plots_quest import fits, join
from skills import SKILLS


def learn(scene: Scene, wanted: Wanted) -> Story:
    """Failure, advice, practice, success."""
    s = scene
    hero, helper = set_stage(s, wanted)
    skill = s.pick([k for k in SKILLS if fits(hero.kind.tags, k.avoid)])
    if skill.seasons:
        s.set(season=s.pick(skill.seasons))
    s.set(
        skill=skill.do,
        doing=skill.doing,
        tip=s.fill(s.pick(skill.tip)),
        days=s.pick(("three", "five", "seven", "ten")),
    )
    fails = [s.fill(x) for x in s.rng.sample(skill.fail, 2)]
    wins = [s.fill(x) for x in s.rng.sample(skill.success, 2)]
    s.set(fail2=fails[1])
    p1 = [
        opening(s),
        s.say(
            "{N} wanted to learn to {skill}.",
            "There was one thing {he} could not do: {he} could not {skill}.",
            "All {his} friends could {skill}, but {n} could not.",
            "More than anything, {n} wanted to learn to {skill}.",
            '{Oneday} {he} saw {stranger} and thought, "I want to learn to {skill}, too!"',
        ),
    ]
    p2 = [
        s.say(
            "{Oneday} {he} tried it for the first time.",
            "So {he} began to practice.",
            '"It cannot be so hard," {said} {n}, and {he} began.',
            "{Oneday} {he} got up early and tried.",
        ),
        fails[0],
        s.say(
            "{He} tried again. {fail2}",
            "The second time was no better. {fail2}",
            "{He} tried once more, but it did not work.",
            "{fail2}",
        ),
        s.say(
            "{Stranger} laughed at {him}.",
            '"I will never learn it," {said} {n} {sadly}.',
            "{N} was {sad} and wanted to give up.",
            '"This is much too hard," {said} {n}.',
            "{N} hid {his} face and went home.",
        ),
    ]
    p3 = [
        meeting(s),
        tells(s)
        if s.chance(0.5)
        else s.say(
            '"I cannot {skill}," {said} {n} {sadly}.',
            '"I so want to {skill}, but I cannot do it," {said} {n}.',
        ),
        s.say(
            '"I know how it feels," {said} {fn}. "{tip}."',
            '"{Comfort}," {said} {fn}. "{tip}."',
            '{Fn} smiled. "{tip}," {fhe} said.',
            '"I could not do it either, once," {said} {fn}. "{tip}."',
        ),
    ]
    p4 = [
        s.say(
            "From then on {n} practiced every day.",
            "For {days} days they practiced together.",
            "Every evening {fn} came, and every evening {n} tried again.",
            "{N} practiced in the morning, at noon and in the evening.",
        ),
        s.say(
            "Sometimes it went badly, sometimes it went a little better.",
            "The first day was hard. The second day was a little easier.",
            "{He} made many mistakes, but {he} laughed about them.",
            '"A little better than yesterday," {said} {fn} each time.',
        ),
        weather(s) if s.chance(0.3) else "",
        s.say(
            "And then, {oneday}, it worked!",
            "On the last day it suddenly worked.",
            "And then came the great day.",
            "{Oneday} {n} tried again, and this time everything was different.",
        ),
        *(wins if s.chance(0.5) else wins[:1]),
        s.say(
            '"{Great}! I can {skill}!" {cried} {n}.',
            "{Fn} clapped and cheered.",
            "{Elder} was very proud of {him}.",
            "Even {stranger} had to admit that {n} was good at {doing}.",
        ),
        thanks(s) if s.chance(0.5) else "",
    ]
    return finish(
        s,
        join(p1, p2, p3, p4, [close(s, s.pick(("patience", "patience", "help")))]),
        hero,
        helper,
        [
            "@ {k} who learns to {skill}",
            "@ {k} who wants to learn to {skill}",
            "@ {k} who cannot {skill}",
            "{doing}",
            "learning something new",
            "never giving up",
        ],
        [
            ("What did {n} want to learn?", "{N} wanted to learn to {skill}."),
            ("What did {n} learn?", "{N} learned to {skill}."),
            ("What did {fn} say to {n}?", '{Fn} said, "{tip}."'),
            ("Could {n} {skill} at first?", "No, at first {n} could not {skill}."),
            ("Can {n} {skill} now?", "Yes, now {n} can {skill}."),
        ],
    )


FEARS = (
    (
        "the dark",
        "When night came, {he} hid under {his} blanket.",
        "it was the middle of the night",
        "the lamp had gone out",
    ),
    (
        "thunder",
        "As soon as a cloud came, {he} put {his} {hands} over {his} ears.",
        "a thunderstorm was raging",
        "lightning flashed over the hills",
    ),
    (
        "deep water",
        "{He} never went closer to the pond than ten steps.",
        "the stream was high after the rain",
        "the water was black and deep",
    ),
    (
        "high places",
        "Even on a low wall {his} knees trembled.",
        "the way led up a steep rock",
        "the ground was far, far below",
    ),
    (
        "strangers",
        "When somebody new came, {he} ran and hid.",
        "the place was full of strangers",
        "strange faces looked at {him} from every side",
    ),
    (
        "the forest",
        "The rustling of the leaves made {him} shiver.",
        "the way led deep into the forest",
        "the trees creaked and groaned",
    ),
    (
        "loud noises",
        "When a door banged, {he} jumped into the air.",
        "there was a terrible noise",
        "it banged and crashed all around",
    ),
    (
        "the old cellar",
        "{He} was sure that something lived down there.",
        "the way led down into the old cellar",
        "it was cold and black down there",
    ),
)


def fear(scene: Scene, wanted: Wanted) -> Story:
    """Someone is in danger exactly where the hero is afraid to go."""
    s = scene
    hero, friend = set_stage(s, wanted, not_trait="lonely", fearful=True, helper_avoid="big")
    what, habit, danger, detail = s.pick(
        [
            f
            for f in FEARS
            if not (f[0] == "deep water" and "swims" in hero.kind.tags)
            and not (f[0] == "high places" and hero.kind.tags & {"flies", "climbs"})
        ]
    )
    s.set(fear=what, danger=danger, detail=s.fill(detail), p1=s.pick(PLACES))
    p1 = [
        opening(s),
        s.say(
            "{N} was afraid of {fear}.",
            "But there was one thing {he} did not like at all: {fear}.",
            "Nobody knew that {n} was afraid of {fear}.",
            "{N} had a secret: {he} was afraid of {fear}.",
        ),
        s.fill(habit),
        s.say(
            "The others sometimes laughed about it.",
            '"I am just not brave," {he} told {himself}.',
            '{Elder} always said, "One day you will be brave."',
            "",
        ),
    ]
    p2 = [
        s.say(
            "{His} best friend was {fn}, @ {adj2} {fk}.",
            "{He} had a good friend, @ {fk} named {fn}.",
            "Next door lived @ {fk} named {fn}, who was {his} friend.",
        ),
        s.say(
            "{Oneday2} {fn} did not come home.",
            "{Oneday2} somebody called for help. It was {fn}!",
            '{Oneday2} {stranger} came running. "{Fn} is in trouble!"',
            "{Oneday2} {n} heard that {fn} was lost.",
        ),
        s.say(
            "{Fhe} was stuck near {p1}.",
            "{Fhe} had hurt {fhis} foot near {p1}.",
            "{Fhe} had lost {fhis} way near {p1}.",
        ),
        s.say("And {danger}.", "Now {danger}, and nobody else was near.", "To make things worse, {danger}."),
    ]
    p3 = [
        s.say(
            '{N} trembled. "[I cannot do it|I am so afraid]," {he} whispered.',
            "{heart} Everything in {him} wanted to run away.",
            "{His} legs would not move.",
            "{N} thought of {fear} and shivered.",
        ),
        s.say(
            "But then {he} thought of {fn}.",
            "Then {he} heard the voice of {fn} again.",
            '"But {fn} needs me," {he} said to {himself}.',
            "But a friend is a friend.",
        ),
        s.say("{deepbreath}"),
        s.say(
            "Then {he} took one step, and then another.",
            "Then {he} took a lantern and went.",
            '"I am coming!" {he} {cried}, and {he} ran.',
            "Step by step {he} went on, singing to give {himself} courage.",
        ),
    ]
    p4 = [
        s.say(
            "{Detail}, but {n} did not stop.",
            "Although {detail}, {he} went on.",
            "{Detail}. {N} was afraid, but {he} kept going.",
        ),
        s.say(
            "At last {he} found {fn}.",
            "There sat {fn}, wet and cold.",
            "Then {he} saw {fn}, who was crying softly.",
        ),
        s.say(
            '"You came!" {said} {fn}.',
            '"I knew you would come," {said} {fn}.',
            '"Is that really you, {n}?" {asked} {fn}.',
        ),
        s.say(
            "{N} took {fn} by the {fhands1} and led {fhim} home.",
            "{N} helped {fn} up, and together they walked home.",
            "{N} put {his} scarf around {fn} and showed {fhim} the way home.",
            "They held on to each other and walked back, one step at a time.",
        ),
    ]
    p5 = [
        s.say(
            '"You are the bravest {k} I know," {said} {fn}.',
            '"Weren\'t you afraid?" {asked} {fn}. "Yes, I was," {ans} {n}, "but you are my friend."',
            '"{Thanks}," {said} {fn}. "You saved me."',
            "Everyone praised {n}, and {elder} gave {him} {food}.",
        ),
        s.say(
            "{N} was still a little afraid of {fear}, but never again as much as before.",
            "And the fear? It was only half as big as before.",
            "After that night {he} was hardly ever afraid of {fear}.",
        )
        if s.chance(0.7)
        else "",
    ]
    return finish(
        s,
        join(p1, p2, p3, p4, [*p5, close(s, "courage")]),
        hero,
        friend,
        [
            "@ {k} who is afraid of {fear}",
            "@ {k} who was afraid of {fear}",
            "courage",
            "being brave",
            "@ {k} who finds courage",
            "@ {k} who saves a friend",
        ],
        [
            ("What was {n} afraid of?", "{N} was afraid of {fear}."),
            ("Who needed help?", "{Fn}, the {fk}, needed help."),
            ("Who did {n} save?", "{N} saved {fn}, the {fk}."),
            ("Where was {fn}?", "{Fn} was near {p1}."),
            ("Was {n} brave?", "Yes, {n} was afraid, but {he} was brave and saved {fn}."),
        ],
        helps=False,
    )


def quarrel(scene: Scene, wanted: Wanted) -> Story:
    """Two friends want the same thing, lose each other, and share in the end."""
    s = scene
    hero, friend = set_stage(s, wanted, not_trait="lonely generous")
    word, looks = s.pick(OBJECTS)
    s.set(o=s.pick(looks) + " " + word, ob=word, p1=s.pick(PLACES))
    p1 = [
        opening(s),
        s.say(
            "{His} best friend was @ {fk} named {fn}.",
            "{He} had a friend, @ {adj2} {fk} named {fn}, and they did everything together.",
            "Every day {he} played with {fn}, @ {fk} who lived close by.",
        ),
    ]
    p2 = [
        s.say(
            "{Oneday} they found @ {o} near {p1}.",
            "{Oneday}, at {p1}, they both saw @ {o} at the same time.",
            "{Oneday} @ {o} lay in the grass near {p1}.",
        ),
        s.say(
            '"It is mine!" {cried} {n}. "No, it is mine!" {cried} {fn}.',
            '"I saw it first," {said} {n}. "But I picked it up," {said} {fn}.',
            "Both of them wanted to have it, and neither would let go.",
        ),
        s.say(
            "They pulled and pushed until the {ob} fell into the mud.",
            "They shouted so loudly that {birds} flew away.",
            "{N} grabbed the {ob} and ran home.",
            '"Then I will never play with you again!" {cried} {n}.',
        ),
        s.say(
            "{Fn} turned around and walked away.",
            "Both went home without a word.",
            "After that it was very quiet.",
        ),
    ]
    p3 = [
        weather(s) if s.chance(0.4) else "",
        s.say("{Nextday} {n} played with the {ob} alone.", "{N} sat at home with the {ob} and looked at it."),
        s.say(
            "But it was no fun at all.",
            "But the {ob} did not laugh, and it did not tell jokes.",
            "Somehow the {ob} was not so nice anymore.",
            "The day was long, and the game was dull.",
        ),
        s.say(
            "{N} missed {fn}.",
            "{He} thought of all the games {he} had played with {fn}.",
            "{He} looked out of the window, but {fn} did not come.",
        ),
        s.say(
            '{Elder} asked, "Which is worth more, @ {ob} or a friend?"',
            '"What use is @ {ob} without a friend?" {he} thought.',
            '"You can have @ {ob} or you can have a friend," {said} {elder}. "Or you can have both."',
            "",
        ),
    ]
    p4 = [
        s.say(
            "So {n} took the {o} and went to {fn}.",
            "At last {n} ran to the house of {fn} and knocked.",
            "{N} took all {his} courage and went to find {fn}.",
        ),
        s.say(
            '"I am sorry," {said} {n}. "I was wrong. You may have it."',
            '"I am sorry that I shouted," {said} {n} {softly}. "Please be my friend again."',
            '"Here, take the {ob}," {said} {n}. "You are more important to me."',
        ),
        s.say(
            '"I am sorry, too," {ans} {fn}.',
            '{Fn} smiled. "I was just on my way to you," {fhe} said.',
            "{Fn} did not say anything, but {fhe} hugged {n}.",
        ),
        s.say(
            '"Let us share it," {said} {fn}. "One day you, one day me."',
            "They decided to share the {o}: one day it was with {n}, and the next day it was with {fn}.",
            "From then on the {o} belonged to both of them.",
            '"It can belong to both of us," {said} {fn}, and so it was.',
        ),
        s.say(
            "They played until the sun went down.",
            "They laughed and played the whole afternoon.",
            "Soon they had forgotten the quarrel.",
        ),
    ]
    return finish(
        s,
        join(p1, p2, p3, p4, [close(s, "sharing")]),
        hero,
        friend,
        [
            "sharing",
            "two friends who quarrel",
            "friendship",
            "@ {k} and @ {fk} who quarrel",
            "@ {k} who learns to share",
            "two friends and @ {o}",
            "@ {o}",
        ],
        [
            ("What did they quarrel about?", "They quarreled about @ {o}."),
            ("What did they find?", "They found @ {o}."),
            ("Where did they find the {ob}?", "They found it near {p1}."),
            ("Who said sorry first?", "{N} said sorry first."),
            ("What did they do in the end?", "In the end {n} and {fn} shared the {o}."),
        ],
        helps=False,
    )
