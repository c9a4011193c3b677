"""Plots about doing right: a gift, a mistake, a good deed, a seed that needs time."""

from __future__ import annotations

from beats import Story, Wanted, close, finish, opening, set_stage, thanks, weather
from grammar import Scene
from lexicon import PLACES
from plots_quest import join

GIFTS = (
    ("a crown of flowers", "flowers from the meadow"),
    ("a warm scarf", "soft wool"),
    ("a wooden bird", "a piece of wood"),
    ("a lantern of paper", "colored paper"),
    ("a big cake", "flour and honey"),
    ("a necklace of shells", "shells from the shore"),
    ("a little boat", "bark and leaves"),
    ("a picture of the hills", "colors and a brush"),
    ("a soft cushion", "moss and feathers"),
    ("a wind chime", "old spoons and string"),
    ("a box for treasures", "small boards and nails"),
    ("a song", "the right notes"),
)


def gift(scene: Scene, wanted: Wanted) -> Story:
    """No money for a present, so it is made by hand."""
    s = scene
    hero, friend = set_stage(s, wanted, not_trait="lonely")
    present, stuff = s.pick(GIFTS)
    other = s.pick(("the old carpenter", "the weaver", "the kind postman", "the old potter", "the blacksmith"))
    s.set(gift=present, stuff=stuff, other=other, gf="the " + present.split(" ", 1)[1], p1=s.pick(PLACES))
    p1 = [
        opening(s),
        s.say("{His} best friend was {fn}, @ {adj2} {fk}.", "{He} had a dear friend, @ {fk} named {fn}."),
        s.say(
            "Soon it would be the birthday of {fn}.",
            "{Fn}'s birthday was only three days away.",
            "{Fn} was ill and had to stay in bed.",
            "{Fn} had been sad for days, and {n} wanted to cheer {fhim} up.",
        ),
    ]
    p2 = [
        s.say(
            "{N} wanted to give {fhim} something special, but {he} had no money.",
            '"I need a present," {said} {n}, but {his} pockets were empty.',
            "In the shop everything was much too expensive.",
            "{N} counted {his} coins. There was only one, and it was bent.",
        ),
        s.say("{think}"),
        s.say(
            "Then {he} had an idea: {he} would make {gift}.",
            '"I know! I will make {gift}," {he} {cried}.',
            '{Other} said, "Make {fhim} something yourself." So {n} decided to make {gift}.',
        ),
    ]
    p3 = [
        s.say("For that {he} needed {stuff}.", "First {he} had to find {stuff}."),
        weather(s) if s.chance(0.3) else "",
        s.say(
            "{He} searched all day at {p1}.",
            "{Other} gave {him} what was missing, and in return {n} swept the floor.",
            "{He} helped {other} all morning and got what {he} needed.",
        ),
        s.say(
            "Then {n} worked until late at night.",
            "{He} worked for two whole days.",
            "It was not easy, and twice {he} had to begin again.",
            "{Other} showed {him} how to do it.",
        ),
        s.say(
            "In the end it was not perfect, but it was made with love.",
            "At last {gf} was finished.",
            "It was a little crooked, but it was beautiful.",
        ),
    ]
    p4 = [
        s.say(
            "Then the day came. {N} knocked on {fn}'s door, and {his} heart beat fast.",
            "On the great day {n} hid {gf} behind {his} back and went to {fn}.",
            "{Nextday} {n} brought {gf} to {fn}.",
        ),
        s.say(
            "The others had brought big boxes with golden ribbons.",
            '"It is only something small," {said} {n} {softly}.',
            '"This is for you," {said} {n}. "I made it myself."',
        ),
        s.say(
            "{Fn} looked at {gf} for a long time. Then {fhe} smiled.",
            "{Fn}'s eyes began to shine.",
            '"For me?" {asked} {fn}, and {fhe} could hardly believe it.',
        ),
        s.say(
            '"This is the nicest present I have ever been given," {said} {fn}.',
            '"You made it yourself? That makes it the best of all," {said} {fn}.',
            "{Fn} hugged {n} so hard that {he} could hardly breathe.",
        ),
        s.say(
            "Then everyone ate {food}.",
            "They sat together and ate {food}.",
            "They sang and laughed until evening.",
        ),
    ]
    return finish(
        s,
        join(p1, p2, p3, p4, [close(s, "giving")]),
        hero,
        friend,
        [
            "@ {k} who makes a present",
            "a birthday present",
            "a gift",
            "{gift}",
            "@ {k} who makes {gift}",
            "@ {k} who wants to give @ {fk} a present",
        ],
        [
            ("What did {n} make?", "{N} made {gift}."),
            ("Who was the present for?", "The present was for {fn}, the {fk}."),
            ("What did {n} need?", "{N} needed {stuff}."),
            ("Did {fn} like the present?", "Yes, {fn} liked {gf} very much."),
            ("Why did {n} not buy a present?", "{N} had no money, so {he} made the present."),
        ],
        helps=False,
    )


ACCIDENTS = (
    ("the blue vase", "broke the blue vase", "a ball"),
    ("the kitchen window", "broke the kitchen window", "a stone"),
    ("the garden fence", "broke the garden fence", "a wagon"),
    ("the big cake", "dropped the big cake", "a jump"),
    ("the good teapot", "broke the good teapot", "a broom"),
    ("the new boat", "made a hole in the new boat", "a stick"),
    ("the jar of honey", "spilled the jar of honey", "a wild dance"),
    ("the white wall", "painted the white wall by mistake", "a full bucket of paint"),
)


def mistake(scene: Scene, wanted: Wanted) -> Story:
    """Something is broken, hidden, and confessed."""
    s = scene
    hero, friend = set_stage(s, wanted, not_trait="honest careful lonely")
    thing, deed, means = s.pick(ACCIDENTS)
    s.set(
        thing=thing,
        deed=deed,
        means=means,
        dodeed=deed.replace("broke", "break")
        .replace("dropped", "drop")
        .replace("made", "make")
        .replace("spilled", "spill")
        .replace("painted", "paint"),
    )
    p1 = [
        opening(s),
        s.say(
            "{Oneday} {n} was playing, although {he} had promised to be careful.",
            "{Oneday} {he} was alone at home.",
            "{Oneday} {n} ran through the house like the wind.",
        ),
        s.say(
            "Then it happened: {he} {deed}.",
            "It took only a moment, and {n} {deed}.",
            "With {means}, {he} {deed}.",
        ),
    ]
    p2 = [
        s.say(
            "{N} looked around. Nobody had seen it.",
            "It was very quiet. {N} did not move.",
            '"{Ohno}," {he} whispered.',
        ),
        s.say(
            "{He} ran away and hid.",
            "Quickly {he} went outside, as if nothing had happened.",
            "{He} was so frightened that {he} told nobody.",
        ),
        s.say(
            'In the evening {elder} asked, "Who did this?" "{It_was}," {said} {n}.',
            'When {elder} asked, {n} said, "{It_was}."',
        ),
        s.say(
            "As soon as the words were out, {his} stomach hurt.",
            "It was a lie, and {n} knew it.",
            "{Elder} only nodded and looked a little sad.",
        ),
    ]
    p3 = [
        s.say(
            "That night {n} could not sleep.",
            "At supper nothing tasted good, not even {food}.",
            "The lie was as heavy as a stone.",
        ),
        s.say(
            "{Nextday} {he} met {fn}, @ {adj2} {fk}.",
            "{Nextday} {he} told {his} friend {fn}, @ {adj2} {fk}, about it.",
        ),
        s.say(
            '"What shall I do?" {asked} {n}.',
            '"I am so ashamed," {said} {n}.',
            '"Now I do not know how to put it right," {said} {n}.',
        ),
        s.say(
            '"Tell the truth," {said} {fn}. "It will only hurt for a moment."',
            '"A lie grows every day," {said} {fn}. "The truth stays small."',
            '"I will come with you," {said} {fn}. "But you must say it yourself."',
        ),
    ]
    p4 = [
        s.say(
            "{deepbreath} Then {he} went to {elder}.",
            "So {n} went home, slowly, step by step, and looked for {elder}.",
        ),
        s.say(
            '"It was me," {said} {n}. "I {deed}, and I lied. I am sorry."',
            '"I have to tell you something," {said} {n} {softly}. "I {deed}. I am very sorry."',
        ),
        s.say(
            "{Elder} was silent for a moment and then hugged {him}.",
            '"I am glad that you told me," {said} {elder}.',
        ),
        s.say(
            '"Come, we will put it right together," {said} {elder}.',
            '"Everybody makes mistakes," {said} {elder}. "It was brave of you to say so."',
        ),
        s.say(
            "Together they cleaned up, and {fn} helped.",
            "For a week {n} helped in the kitchen to make up for it.",
            "They worked until everything was as good as new.",
        ),
        thanks(s) if s.chance(0.4) else "",
    ]
    return finish(
        s,
        join(p1, p2, p3, p4, [close(s, "honesty")]),
        hero,
        friend,
        [
            "@ {k} who tells a lie",
            "telling the truth",
            "honesty",
            "@ {k} who {deed}",
            "a mistake",
            "@ {k} who says sorry",
        ],
        [
            ("What did {n} do?", "{N} {deed}, but in the end {he} told the truth."),
            ("Did {n} tell the truth?", "Yes, in the end {n} told the truth."),
            ("What did {fn} say?", "{Fn} said that {n} should tell the truth."),
            ("Was {elder} angry?", "No, {elder} was glad that {n} told the truth."),
        ],
    )


PLIGHTS = (
    ("stuck in the mud", "pulled {fhim} out with a rope"),
    ("caught in a thorn bush", "bent the thorns aside, one by one"),
    ("shivering in the rain", "held @ {color} umbrella over {fhim}"),
    ("sitting by the road with a sore foot", "wrapped a soft leaf around {fhis} foot"),
    ("very hungry", "shared {his} last bread with {fhim}"),
    ("tangled in an old net", "untied every knot"),
    ("lost and crying", "showed {fhim} the way home"),
    ("trapped under a fallen branch", "lifted the branch with all {his} strength"),
    ("trying to push a broken cart", "helped {fhim} to mend the wheel"),
)
NEEDS = (
    ("{n} fell into a deep hole", "let down a long rope"),
    ("{n} lost {his} way in the fog", "heard {him} calling and led {him} home"),
    ("the roof of {n}'s home blew away", "brought straw and nails and helped to mend it"),
    ("{n} was ill in bed", "brought hot soup every day"),
    ("{n} could not find {his} way across the ice", "knew where the ice was thick"),
    ("a heavy log fell on {n}'s door", "rolled the log away with many friends"),
    ("{n} had nothing left to eat", "came with a basket full of {food}"),
)


def deed(scene: Scene, wanted: Wanted) -> Story:
    """A kindness comes back."""
    s = scene
    hero, friend = set_stage(s, wanted, not_trait="proud")
    plight, aid = s.pick(PLIGHTS)
    need, back = s.pick(NEEDS)
    s.set(plight=plight, aid=s.fill(aid), need=s.fill(need), back=s.fill(back), p1=s.pick(PLACES))
    if "ice" in need:
        s.set(season="winter")
    p1 = [
        opening(s),
        s.say(
            "{Oneday} {n} was on the way to {p1}.",
            "{Oneday} {he} {walked} {along}.",
            "{Oneday} {n} went out to gather [wood|berries|nuts|mushrooms].",
        ),
        weather(s) if s.chance(0.5) else "",
    ]
    p2 = [
        s.say(
            "There {he} saw @ {fk} who was {plight}.",
            "Near {p1} {he} found @ {fk}, {plight}.",
            "Suddenly {he} heard a weak voice. It was @ {fk} who was {plight}.",
        ),
        s.say(
            '"Please help me," {said} the {fk}. "My name is {fn}."',
            'The {fk} was called {fn}. "All the others just walked by," {fhe} said {softly1}.',
            '{Fhe} looked up. "I am {fn}," {fhe} said. "I have been here since this morning."',
        ),
        s.say(
            "{N} was in a hurry, but {he} stopped.",
            "{N} did not think twice.",
            '"Of course I will help you," {ans} {n}.',
        ),
        s.say("{He} {aid}.", "With great care {he} {aid}."),
        s.say(
            '"{Thanks}," {said} {fn}. "One day I will help you, too."',
            '"I will never forget this," {said} {fn}.',
            '"How can I thank you?" {asked} {fn}. "You do not have to," {ans} {n}.',
        ),
    ]
    p3 = [
        s.say("{N} laughed and went on.", "Time went by, and {n} had almost forgotten it.", "Weeks passed."),
        s.say("Then, {oneday}, {need}.", "But {oneday} {need}.", "Then bad luck came: {need}."),
        s.say(
            "{N} was {sad}.",
            '"Who will help me now?" {he} thought.',
            "{He} called and called, but nobody seemed to hear.",
            "",
        ),
    ]
    p4 = [
        s.say(
            "But somebody did come. It was {fn}!",
            'Then a voice called, "I am here!" It was {fn}.',
            "As soon as {fn} heard about it, {fhe} came running.",
        ),
        s.say("{Fn} {back}.", "{Fhe} {back}."),
        s.say(
            '"You came!" {cried} {n}. "You helped me, and now I help you," {said} {fn}.',
            '"You did not forget me," {said} {n}. "How could I?" {asked} {fn}.',
            '"A promise is a promise," {said} {fn}.',
        ),
        thanks(s) if s.chance(0.5) else "",
    ]
    return finish(
        s,
        join(p1, p2, p3, p4, [close(s, "kindness")]),
        hero,
        friend,
        [
            "kindness",
            "a good deed",
            "@ {k} who helps @ {fk}",
            "@ {k} who is kind",
            "how @ {k} helped @ {fk}",
            "@ {k} and @ {fk} who help each other",
        ],
        [
            ("Who did {n} help?", "{N} helped {fn}, the {fk}."),
            ("How did {n} help {fn}?", "{N} {aid}."),
            ("How did {fn} help {n}?", "{Fn} {back}."),
            ("What happened to {fn}?", "{Fn} was {plight}."),
            ("Did {fn} forget {n}?", "No, {fn} did not forget {n} and helped {him}, too."),
        ],
    )


SEEDS = (
    ("a sunflower", "taller than the door"),
    ("an apple tree", "full of white blossoms"),
    ("a pumpkin", "as round as the full moon"),
    ("a red rose", "as red as the evening sky"),
    ("a cherry tree", "covered with flowers"),
    ("a bean plant", "higher than the roof"),
    ("a strawberry plant", "full of sweet red berries"),
)


def seed(scene: Scene, wanted: Wanted) -> Story:
    """Waiting for something to grow."""
    s = scene
    hero, friend = set_stage(s, wanted, seasons=("spring",))
    plant, look = s.pick(SEEDS)
    s.set(plant=plant, look=look, tp="the " + plant.split(" ", 1)[1], giver=s.value("elder"))
    p1 = [
        opening(s),
        s.say(
            '{Oneday} {giver} gave {him} a seed. "If you care for it, it will become {plant}," {said} {giver}.',
            "{Oneday} {n} found a seed on the path and took it home.",
            '{Oneday} {he} got a tiny seed from {fn}, @ {adj2} {fk}. "It wants to be {plant}," {said} {fn}.',
        ),
    ]
    p2 = [
        s.say(
            "{N} made a hole in the ground, put the seed into it and gave it water.",
            "{He} planted it in the sunniest spot and watered it.",
            "{N} filled a pot with good earth and planted the seed.",
        ),
        s.say(
            "Then {he} sat down and waited.",
            '"Now grow!" {said} {n}.',
            "{He} looked at the ground all day long.",
        ),
        s.say(
            "Nothing happened.",
            "The next day there was only brown earth, and the day after, too.",
            "One day passed, and then another, but nothing could be seen.",
        ),
        s.say(
            '"It does not like me," {said} {n} {sadly}.',
            "{He} sang to it, and {he} read it a story, but nothing came.",
            "{N} wanted to dig it up to see what was wrong.",
            '"Perhaps it is asleep," {he} thought.',
        ),
    ]
    p3 = [
        s.say(
            '{Fn}, the {fk}, came by. "What are you doing?" {fhe} asked.',
            "{His} neighbor {fn}, @ {adj2} {fk}, looked over the fence.",
            '"Why are you so sad?" asked {fn}, the {fk}.',
        ),
        s.say('"My seed does not grow," {ans} {n}.', '"I am waiting, and waiting is hard," {said} {n}.'),
        s.say(
            '"It grows under the ground first, where you cannot see it," {said} {fn}.',
            '"Roots come first," {said} {fn}. "Give it time."',
            '"A seed cannot read the clock," {said} {fn}. "Water it and wait."',
        ),
        s.say(
            "So {n} watered it every morning.",
            "From then on they watered it together.",
            "So {n} waited, and {fn} waited with {him}.",
        ),
    ]
    p4 = [
        s.say(
            "It rained, and then the sun shone again.",
            "Warm days came, and cool nights.",
            "The moon grew round and thin again.",
        ),
        s.say(
            "And {oneday} there was a tiny green tip in the ground!",
            "Then, {oneday}, two green leaves looked out of the earth.",
        ),
        s.say('"{Great}! It is growing!" {cried} {n}.', "{N} danced around it, but very carefully."),
        s.say(
            "It grew a little each day, and in summer there stood {plant}, {look}.",
            "Week after week it grew, until it was {plant}, {look}.",
        ),
        s.say(
            "Everyone who passed by stopped and smiled.",
            "{N} shared everything with {fn}.",
            "Beside {tp} {n} and {fn} sat and told each other stories.",
            "{Birds} came to visit it.",
        ),
    ]
    return finish(
        s,
        join(p1, p2, p3, p4, [close(s, "patience")]),
        hero,
        friend,
        ["a seed", "@ {k} who plants a seed", "patience", "@ {k} and a seed", "{plant}", "a garden"],
        [
            ("What did {n} plant?", "{N} planted a seed."),
            ("What did the seed become?", "The seed became {plant}."),
            ("What did the seed need?", "The seed needed water, sun and time."),
            ("What did {fn} tell {n}?", "{Fn} told {n} to give the seed time."),
            ("What did {tp} look like?", "It was {look}."),
        ],
    )
