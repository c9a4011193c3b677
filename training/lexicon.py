"""Word lists: macros that are drawn anew at each use, seasons with their weather, objects, places."""

from __future__ import annotations

MACROS: dict[str, tuple[str, ...]] = {
    "said": ("said",),
    "ans": ("said", "answered", "replied", "said"),
    "asked": ("asked",),
    "cried": ("cried", "called", "shouted"),
    "happily": ("happily", "with a smile", "in a cheerful voice", "gladly", "with shining eyes"),
    "softly": ("softly", "quietly", "in a low voice", "gently", "in a small voice"),
    "sadly": ("sadly", "with a sigh", "in a small voice", "with tears in {his} eyes"),
    "quickly": ("quickly", "as fast as {he} could", "without waiting", "at once"),
    "small": ("small", "little", "tiny"),
    "big": ("big", "large", "great", "huge"),
    "old": ("old", "very old", "ancient"),
    "nice": ("lovely", "pretty", "beautiful", "wonderful", "fine"),
    "flower": ("daisy", "tulip", "rose", "bluebell", "poppy", "primrose", "buttercup", "violet"),
    "flowers": ("daisies", "tulips", "wild roses", "bluebells", "poppies", "buttercups", "violets"),
    "tree": ("oak", "pine", "willow", "apple tree", "birch", "chestnut tree", "beech"),
    "birds": ("the swallows", "the blackbirds", "the robins", "the sparrows", "the geese", "the larks"),
    "food": ("bread and cheese", "warm soup", "apple pie", "honey cakes", "berry jam", "pancakes", "oat biscuits",
             "plum cake", "roasted chestnuts", "carrot soup", "cherry tart", "fresh bread", "potato soup"),
    "drink": ("hot cocoa", "warm milk", "mint tea", "apple juice", "cold lemonade"),
    "color": ("red", "blue", "green", "yellow", "white", "golden", "silver", "purple", "orange"),
    "good": ("good", "fine", "wonderful", "splendid"),
    "very": ("very", "so", "really"),
    "happy": ("happy", "glad", "delighted", "full of joy", "so happy that {he} laughed out loud"),
    "happy1": ("happy", "glad", "proud", "happy and proud", "pleased"),
    "adj2": ("friendly", "kind", "wise", "old", "cheerful", "gentle", "clever"),
    "sad": ("sad", "unhappy", "disappointed", "close to tears"),
    "soon": ("soon", "after a while", "before long", "a little later", "not long after that"),
    "then": ("then", "after that", "next", "a moment later"),
    "nextday": ("the next morning", "the next day", "early the next morning", "when the sun came up",
                "the following day"),
    "oneday": ("one day", "one morning", "one afternoon", "one fine day", "one quiet morning", "one Sunday",
               "one evening", "early one morning"),
    "walked": ("walked", "went", "wandered", "hurried", "marched"),
    "along2": ("over a little bridge", "past a sleeping farm", "through a quiet village", "around a round pond",
               "over two small hills", "past a field of corn"),
    "oneday2": ("one night", "one dark night", "one stormy night", "late one evening"),
    "noticed": ("noticed", "noticed", "became aware of"),
    "it_was": ("it was the cat", "it was the wind", "I do not know", "it was not me"),
    "softly1": ("softly", "sadly", "in a weak voice"),
    "shine": ("bright", "strange", "colorful"), "got": ("reached for", "took", "pulled at"),
    "the_rest": ("the rest",),
    "along": ("along the river", "through the tall grass", "over the little bridge", "past the mill",
              "down the dusty road", "between the old trees", "across the green field", "up the stony path",
              "along the narrow lane", "past the sleeping farm", "through the quiet village", "around the pond"),
    "saw": ("saw", "noticed", "spotted"),
    "thanks": ("Thank you", "Thank you so much", "Oh, thank you", "Thank you with all my heart"),
    "hello": ("Hello", "Good morning", "Good day", "Hello there"),
    "great": ("Hooray", "How wonderful", "At last", "What a day", "I can hardly believe it"),
    "ohno": ("Oh no", "Oh dear", "What a pity", "This is bad luck", "Goodness me"),
    "heart": ("{His} heart beat fast.", "{His} heart jumped.", "{He} held {his} breath.",
              "{He} could hardly stand still."),
    "deepbreath": ("{N} took a deep breath.", "{N} closed {his} eyes for a moment.",
                   "{N} counted slowly to three.", "{N} stood up very straight."),
    "think": ("{N} thought about it for a long time.", "{N} sat down on a [stone|log|fallen branch] and thought.",
              "{N} thought hard.", "{N} walked up and down and thought."),
    "rest": ("That night {he} slept under @ {tree}.", "In the evening {he} rested in a pile of warm hay.",
             "At noon {he} sat down in the shade and ate a piece of bread.",
             "When {he} was tired, {he} rested beside a [little|clear] stream.",
             "{He} stopped only once, to drink some cool water."),
    "comfort": ("Don't worry", "Don't be sad", "Dry your tears", "Cheer up", "Don't give up"),
}

SEASONS: dict[str, tuple[str, ...]] = {
    "spring": ("It was spring, and the first {flowers} were opening.", "The snow had melted, and {birds} were back.",
               "It was a soft spring day, and the air smelled of wet grass.", "A warm wind blew over the young grass.",
               "New leaves shone on every tree, for spring had come.", "In the spring sunshine the whole world looked new."),
    "summer": ("It was a hot summer day.", "The sun shone, and the air was full of butterflies.",
               "It was summer, and the days were long and bright.", "Bees hummed in the clover, and the sky was deep blue.",
               "It was so warm that even {birds} sat quietly in the shade.", "The summer air smelled of hay and honey."),
    "autumn": ("It was autumn, and the leaves were red and gold.", "A cool wind blew yellow leaves along the path.",
               "It was a grey autumn day, and the air smelled of apples.", "Mist lay over the fields.",
               "The last geese were flying south, for it was autumn.", "Ripe nuts and apples lay in the grass."),
    "winter": ("It was winter, and everything was white.", "Snow lay on the roofs, and the pond was frozen.",
               "It was a cold, clear winter day.", "Thick snow had fallen in the night.",
               "Icicles hung from every roof.", "The winter wind sang in the bare trees."),
}

# (word, colours or other adjectives) of things that can be owned, lost, shared or given.
OBJECTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("ball", ("red", "blue", "yellow", "green", "striped")), ("kite", ("red", "blue", "yellow", "paper", "orange")),
    ("scarf", ("red", "blue", "woolen", "green", "striped")), ("hat", ("red", "straw", "blue", "green", "woolen")),
    ("key", ("golden", "silver", "rusty", "little")), ("bell", ("silver", "little", "brass", "golden")),
    ("drum", ("red", "wooden", "little", "blue")), ("flute", ("wooden", "silver", "little")),
    ("lantern", ("brass", "green", "paper", "little")), ("basket", ("brown", "yellow", "little", "round")),
    ("boat", ("wooden", "blue", "paper", "little")), ("button", ("silver", "blue", "shiny", "golden")),
    ("book", ("green", "blue", "red", "little")), ("blanket", ("blue", "soft", "woolen", "yellow")),
    ("cup", ("blue", "white", "silver", "green")), ("umbrella", ("yellow", "purple", "red", "blue")),
    ("stone", ("shiny", "white", "green", "round")), ("feather", ("white", "blue", "long", "golden")),
    ("wagon", ("red", "wooden", "little", "green")), ("ring", ("golden", "silver", "little")),
    ("map", ("old", "paper", "little")), ("whistle", ("silver", "wooden", "tin")),
    ("mitten", ("red", "blue", "woolen", "white")), ("spoon", ("wooden", "silver", "golden")),
    ("shell", ("pink", "white", "shiny", "spotted")), ("music box", ("little", "golden", "wooden", "blue")),
)

# Places where something can be found or somebody can be met; each works after "at", "to", "near" and "by".
PLACES = (
    "the old mill", "the wooden bridge", "the market square", "the apple orchard", "the pond", "the old well",
    "the tall oak", "the little harbor", "the crossroads", "the waterfall", "the hayfield", "the school",
    "the stone wall", "the blackberry hedge", "the railway station", "the castle gate", "the village fountain",
    "the windmill", "the lighthouse", "the forest gate", "the bakery", "the river bank",
)

# How a wider setting is introduced: (where, short name).
SETTINGS = (
    ("in a quiet village between two hills", "the village"), ("at the edge of a deep green forest", "the forest"),
    ("in a sunny valley", "the valley"), ("in a small town by the sea", "the town"),
    ("on a farm far from the city", "the farm"), ("on a small island", "the island"),
    ("at the foot of a high mountain", "the mountain"), ("in a busy little town", "the town"),
    ("near a wide blue lake", "the lake"), ("in a village where every roof was red", "the village"),
    ("beside a slow green river", "the river"), ("in a land of soft hills", "the hills"),
)

MORALS: dict[str, tuple[str, ...]] = {
    "courage": ("being brave does not mean being without fear", "a small heart can hold great courage",
                "it is all right to be afraid, as long as you take one more step"),
    "help": ("nobody has to do everything alone", "asking for help is not a weakness",
             "a little help at the right time can move a mountain", "a friend makes every road shorter"),
    "patience": ("good things need time", "if you try again and again, you get a little better each day",
                 "nobody learns everything in one day", "small steps lead to great places"),
    "search": ("whoever keeps looking will find a way", "every problem has a reason and an answer",
               "small steps lead to great places", "two see more than one"),
    "kindness": ("kindness always finds its way back", "a kind deed is never lost",
                 "even the smallest friend can be a great help", "whoever helps others is never alone"),
    "sharing": ("joy grows when it is shared", "a shared toy is twice as much fun",
                "friends are worth more than any treasure"),
    "honesty": ("the truth makes the heart light", "a mistake is small when you tell the truth about it",
                "it takes courage to say sorry"),
    "listening": ("strange things are often less frightening when you look at them closely",
                  "it is wise to look before you judge", "behind many a strange noise there is a new friend"),
    "giving": ("the best gifts come from the heart", "a gift does not have to cost anything to be precious",
               "giving can make you as happy as getting"),
}

# Passers-by without a name.
STRANGERS = (
    "the baker", "an old goose", "the postman", "a busy ant", "a fat toad", "the miller", "a tired donkey",
    "an old woman", "the blacksmith", "a spotted cow", "a little beetle", "the old cook", "a proud rooster",
    "the ferryman", "a sleepy bat", "the teacher",
)
