"""What heroes long for, what stands in their way, and what they learn to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wish:
    """`do` follows "wanted to"; `dest` follows "to", "reached" and "the way to"."""

    do: str
    dest: str
    why: tuple[str, ...]
    arrive: tuple[str, ...]
    seasons: tuple[str, ...] = ()
    avoid: str = ""


WISHES = (
    Wish("see the sea", "the sea",
         ("A gull had told {him} about the blue water without end.", "{He} had heard that the sea was bigger than any lake.",
          "{He} had a shell in which one could hear the waves."),
         ("There was the sea, blue and wide, with white waves that rolled onto the sand.",
          "The waves whispered, and the salty wind blew into {his} face.",
          "{N} ran down to the water and let the waves tickle {his} feet."), avoid="swims"),
    Wish("see the snow on the high mountain", "the top of the mountain",
         ("{He} had never seen snow from close by.", "From {his} window {he} could see the white top of the mountain."),
         ("The snow was soft and cold, and it sparkled like sugar.", "{N} made a snowball and laughed.",
          "Far below lay the whole world, as small as a toy."), seasons=("spring", "summer", "autumn")),
    Wish("hear the great bell of the city", "the city",
         ("{His} grandfather had told {him} that the bell sounded like thunder and honey.",
          "People said that whoever heard the bell would be happy for a year."),
         ("Just at noon the great bell began to ring, deep and warm.", "The sound went through the air like a golden wave.",
          "{N} listened until the very last note was gone.")),
    Wish("see the stars from the top of the hill", "the top of the hill",
         ("{He} loved the stars, but the trees around {his} home were too tall.",
          "Every night {he} tried to count the stars, but the roof was in the way."),
         ("The sky was full of stars, more than {he} could ever count.", "A shooting star flew over the hill, silent and bright.",
          "{N} lay down on {his} back and looked up for a long time.")),
    Wish("watch the sun rise from the old tower", "the old tower",
         ("{He} always woke up too late to see the sunrise.", "{He} had heard that the morning looked like fire from up there."),
         ("First the sky turned pink, then gold, and then the sun came up.",
          "{N} had never seen so many colors at the same time.", "The light crept over the fields and woke the birds.")),
    Wish("find the oldest tree in the forest", "the oldest tree",
         ("It was said that the oldest tree could tell stories.", "{He} wanted to ask the tree how the world looked long ago."),
         ("The oldest tree was so wide that ten friends could not have put their arms around it.",
          "Its leaves rustled as if it were telling a story.", "{N} laid {his} ear on the bark and listened.")),
    Wish("visit {his} grandmother behind the hills", "{his} grandmother's house",
         ("{He} had not seen her since last year.", "{He} missed her songs and her plum cake."),
         ("{His} grandmother opened the door and hugged {him} tightly.",
          "There was plum cake on the table, and the whole house smelled of cinnamon.",
          "They talked and sang until it was dark.")),
    Wish("see the big ships in the harbor", "the harbor",
         ("{He} had a picture of a ship on {his} wall.", "{He} dreamed of tall sails every night."),
         ("The ships were as tall as houses, and their white sails shone in the sun.",
          "A friendly captain waved and let {him} ring the ship's bell.", "Sailors sang while they carried boxes and barrels.")),
    Wish("ride on a train", "the railway station",
         ("{He} could hear the whistle of the train every evening.", "{He} wanted to feel how fast the wheels could roll."),
         ("The train puffed and hissed, and then the wheels began to turn.",
          "Fields and houses flew past the window like birds.", "The conductor gave {him} a real ticket with a hole in it.")),
    Wish("see the lights of the city", "the city",
         ("{He} had heard that the city glowed at night like a box of jewels.", "At night there was only darkness around {his} home."),
         ("There were lamps in every window and lanterns along every street.",
          "The lights danced in the river like a thousand fireflies.", "{N} turned around and around, because every side was bright.")),
    Wish("find the blue flower", "the hidden valley",
         ("The blue flower was said to bloom only for those who were patient.", "A blue flower would be the finest present for {elder}."),
         ("There, between two grey stones, stood a single blue flower.", "It smelled of rain and honey.",
          "{N} did not pick it, but sat down beside it and smiled."), seasons=("spring", "summer")),
    Wish("drink from the silver spring", "the silver spring",
         ("The water of the silver spring was said to taste like moonlight.", "Old stories told that the spring made every heart light."),
         ("The water came out of the rock, clear and cold.", "It tasted of stone and mint and morning.",
          "{N} drank and felt as if {he} could sing all day."), avoid="metal"),
    Wish("dance at the summer fair", "the summer fair",
         ("{He} practiced {his} steps every evening behind the house.", "{He} loved music more than anything."),
         ("The fiddlers played, and the lanterns swung in the trees.", "{N} danced until the moon was high.",
          "Everybody clapped their hands when {he} jumped and turned."), seasons=("summer",)),
    Wish("sing at the harvest feast", "the harvest feast",
         ("{He} knew all the old songs by heart.", "{He} had a fine voice, but {he} had never sung for others."),
         ("{N} climbed onto a barrel and began to sing.", "One by one the others joined in, until everyone was singing.",
          "When the song was over, the clapping did not stop."), seasons=("autumn",)),
    Wish("find out where the river began", "the place where the river began",
         ("The river ran past {his} home, and nobody could say where it came from.",
          "{He} wanted to know who poured out so much water."),
         ("Between mossy stones a tiny spring bubbled out of the ground.",
          "It was hard to believe that the big river began so small.", "{N} put one toe into the water and laughed.")),
    Wish("climb to the top of the lighthouse", "the lighthouse",
         ("Every night the light of the tower shone into {his} room.", "{He} wondered how far one could see from up there."),
         ("From the top one could see the whole coast and the little white boats.",
          "The keeper showed {him} the great lamp with its shining glass.", "The wind sang around the tower, and {n} sang along.")),
    Wish("see the whales", "the bay of the whales",
         ("{He} had read that whales sang songs under the water.", "{He} could not believe that an animal could be as big as a house."),
         ("Suddenly a great grey back rose out of the water.", "A whale blew a fountain into the air, as high as a tree.",
          "{N} heard their song, deep and slow and beautiful.")),
    Wish("find a fallen star", "the far meadow",
         ("Last night {he} had seen a star fall from the sky.", "{He} wanted to bring the star back home."),
         ("In the grass lay a small stone that glowed with a soft light.", "It was still warm, as if it had just come from the sky.",
          "{N} held it carefully, and the light shone through {his} {hands}.")),
    Wish("see the valley of the butterflies", "the valley of the butterflies",
         ("{He} had once met a blue butterfly and had never forgotten it.", "People said the air was full of colors there."),
         ("Thousands of butterflies rose into the air, blue and yellow and white.",
          "One of them sat down right on {his} nose.", "It looked as if all the flowers had learned to fly."),
         seasons=("spring", "summer")),
    Wish("read the biggest book in the world", "the great library",
         ("{He} had read every book at home twice.", "{He} loved stories more than cake."),
         ("The book was as big as a door, and its pages rustled like sails.",
          "The librarian helped {him} turn the first page.", "Inside there were pictures of every animal and every star.")),
    Wish("look at the moon through the big telescope", "the house of the star watcher",
         ("{He} wanted to know if anyone lived on the moon.", "{He} always left {his} window open for the moonlight."),
         ("Through the telescope the moon was round and bright and full of mountains.",
          "{N} waved at the moon, just in case.", "The star watcher told {him} the names of seven stars.")),
    Wish("taste wild strawberries", "the sunny clearing",
         ("{He} had heard that they were sweeter than sugar.", "Everyone talked about the wild strawberries, but {n} had never tried one."),
         ("The clearing was red with strawberries.", "They were small and warm and sweeter than anything {he} had ever eaten.",
          "{N} filled {his} basket and kept the best ones to share."), seasons=("summer",), avoid="metal"),
    Wish("skate on the frozen lake", "the frozen lake",
         ("{He} had watched the skaters from far away last winter.", "{He} had a pair of skates that had never been used."),
         ("The ice was smooth and clear as glass.", "At first {he} slipped, but then {he} glided like a bird.",
          "{N} drew a big circle on the ice and laughed."), seasons=("winter",)),
    Wish("see the northern lights", "the icy hill",
         ("{He} had heard that the sky itself could dance.", "{His} neighbor had seen them once and still talked about them."),
         ("Green and purple light moved over the sky like a curtain.", "It was so quiet that {n} could hear the snow fall.",
          "The lights danced and danced, and nobody said a word."), seasons=("winter",)),
    Wish("find a true friend", "the other side of the forest",
         ("It was no fun to play alone.", "{He} had many questions and nobody to ask."),
         ("All the way they had talked and laughed, and suddenly {n} understood.",
          "{N} did not have to look any farther, because a friend was already walking beside {him}.",
          "They looked at each other and laughed.")),
    Wish("find the end of the rainbow", "the end of the rainbow",
         ("After the rain a rainbow had stood over the fields.", "{He} hoped to find something wonderful there."),
         ("There was no gold, but there was a waterfall, and in it shone a small rainbow of its own.",
          "{N} put {his} {hands} into the colored light.", "It was better than any treasure."), seasons=("spring", "summer", "autumn")),
    Wish("cross the lake in a little boat", "the lake",
         ("{He} had always wondered what was on the other side.", "{He} had once seen a tiny light on the far shore."),
         ("There was a little boat on the shore, and its owner was happy to lend it.",
          "The boat rocked softly, and the water was as smooth as silk.", "On the other side stood a field of white flowers."),
         seasons=("spring", "summer", "autumn"), avoid="swims big"),
    Wish("meet the wise old tortoise", "the garden of the tortoise",
         ("The tortoise was said to be two hundred years old.", "{He} had a question that nobody at home could answer."),
         ("The old tortoise slowly put her head out of her shell and smiled.",
          '"You have already learned the most important thing on the way here," she said.',
          "{N} thought about the journey and nodded.")),
)


@dataclass(frozen=True)
class Obstacle:
    """`a` introduces it, `the` names it again; `help` is what a helper shows or gives."""

    a: str
    the: str
    trouble: tuple[str, ...]
    attempt: tuple[str, ...]
    advice: tuple[str, ...]
    solve: tuple[str, ...]
    seasons: tuple[str, ...] = ()
    avoid: str = ""


OBSTACLES = (
    Obstacle("a wide river", "the river", ("The water was fast and cold, and there was no bridge.", "Nobody could jump so far."),
             ("{He} put one foot into the water and pulled it out again at once.", "{He} threw in a branch, and the water carried it away."),
             ("There are flat stones under the willow. I will show you the way", "Behind the bend the water is low, and a fallen tree lies across it"),
             ("Step by step they crossed the river, and soon they stood on the other side.",
              "{Fr} went first, {r} followed, and in the end both were safe and dry on the other side."), avoid="swims flies"),
    Obstacle("a dark forest", "the forest", ("The trees stood so close together that no light came through.", "The path split into many small paths."),
             ("{He} walked in a circle and came back to the same old tree three times.", "{He} took ten steps and could no longer see {his} own {hands}."),
             ("Follow the moss on the trees, and you will never walk in a circle", "Look for the white stones. They mark the right path"),
             ("Together they followed the signs, and soon the light shone between the trees.",
              "{Fr} walked beside {r} until the last dark tree was behind them.")),
    Obstacle("a thick fog", "the fog", ("It was white and wet, and {he} could not see the path.", "Everything was grey, and even the birds were silent."),
             ("{He} called, but only {his} own voice came back.", "{He} took a few steps and bumped into a fence."),
             ("Stay close to me. I know every stone here", "Listen to the stream. It always runs down to the road"),
             ("They went slowly, side by side, and at last the fog opened like a curtain.",
              "{Fr} led the way, and bit by bit the fog grew thin."), seasons=("autumn", "winter", "spring")),
    Obstacle("a steep cliff", "the cliff", ("It was as high as a tower and as smooth as glass.", "There were no steps and no ladder."),
             ("{He} tried to climb, but {he} slid back down again and again.", "{He} looked for a way around, but there was none."),
             ("Behind the thorn bush there is a narrow stair", "I have a long rope. We can pull each other up"),
             ("Slowly they went up, and neither of them looked down.", "With the help of {fr}, {r} reached the top before noon."), avoid="flies climbs"),
    Obstacle("a broken bridge", "the bridge", ("Half of the boards were gone.", "The storm had carried the middle of the bridge away."),
             ("{He} put one foot on the first board, and it cracked.", "{He} tried to push a log across, but it was too heavy for one alone."),
             ("If we carry the log together, it will reach", "There are new boards behind the barn. Let us mend the bridge"),
             ("They worked side by side, and after an hour they could walk across.", "Together they laid a strong log over the gap, and it held."), avoid="flies swims"),
    Obstacle("a tall gate", "the gate", ("It was locked, and the key was missing.", "A sign said: Closed."),
             ("{He} knocked, but nobody came.", "{He} pushed with all {his} might, but it did not move."),
             ("The key hangs on a nail behind the ivy", "You only have to ask politely. The gatekeeper does not hear well, so ask loudly"),
             ("The gate swung open with a long squeak.", "A moment later they were through, and {n} bowed to say thanks."), avoid="flies"),
    Obstacle("a crossroads without a sign", "the crossroads", ("Four roads went in four directions, and they all looked the same.", "The old sign had fallen into the grass, and the rain had washed off the words."),
             ("{He} tried the first road, but it ended at a wall.", "{He} tossed a leaf into the air, but the wind did not know the way either."),
             ("Take the road where the ground is worn by many feet", "Walk toward the tall poplar, and keep the sun on your left"),
             ("They took the road together, and it was the right one.", "{N} did as {fr} said, and the road led straight on.")),
    Obstacle("a muddy swamp", "the swamp", ("With every step {his} feet sank a little deeper.", "The ground was soft and wet and made strange noises."),
             ("{He} lost {his} balance and fell into the mud.", "{He} tried to run, but the mud held {him} fast."),
             ("Step only where the tall grass grows", "Take my walking stick, and feel the ground before each step"),
             ("From one tuft of grass to the next they went, and {soon} the ground was dry again.",
              "{Fr} pulled, {r} pushed, and with a loud plop they were free."), seasons=("spring", "summer", "autumn"), avoid="flies swims"),
    Obstacle("a great heap of snow", "the snow", ("It was higher than a house and blocked the whole road.", "The wind had piled it up in the night."),
             ("{He} dug until {his} {hands} were cold, but the heap did not get smaller.", "{He} tried to climb over it and sank in up to {his} ears."),
             ("Two can dig faster than one", "There is a tunnel that the rabbits made. It is narrow, but it is dry"),
             ("Soon they had made a path, and their cheeks were warm from the work.", "They crawled through to the other side, white from head to toe, and laughed."), seasons=("winter",), avoid="metal"),
    Obstacle("a grumpy goose", "the goose", ("She stood in the middle of the path and hissed.", '"Nobody passes here!" the goose shouted.'),
             ("{He} tried to sneak past, but the goose spread her wings.", "{He} shouted back, and that made the goose even angrier."),
             ("She is only hungry and tired. Be kind to her", "She guards her eggs. Tell her that you will walk softly"),
             ("{N} spoke to the goose in a friendly voice, and she stepped aside.", "The goose looked surprised, and then she let them pass and even wished them a good day.")),
    Obstacle("a sudden storm", "the storm", ("Thunder rolled, and the rain fell like a curtain.", "The wind was so strong that {he} could not walk."),
             ("{He} hid under a bush, but the rain came through the leaves.", "{He} held on to a tree and called for help."),
             ("Come into my house until it is over", "There is a dry cave behind the bushes. Come with me"),
             ("They sat close together and told each other stories until the sun came back.",
              "When the storm was over, a fresh wind blew, and the way was free."), seasons=("spring", "summer", "autumn")),
    Obstacle("a high stone wall", "the wall", ("It was far too high for {him}.", "It went on and on, and there was no door in sight."),
             ("{He} jumped as high as {he} could, but it was no use.", "{He} piled up some stones, but they fell down again."),
             ("Climb onto my back, and then pull me up", "There is a hole behind the ivy, just big enough for us"),
             ("One, two, three, and they were over the wall.", "A moment later they were on the other side, dusty but happy."), avoid="flies climbs big"),
)


@dataclass(frozen=True)
class Skill:
    """`do` follows "learn to"; `doing` follows "good at"."""

    do: str
    doing: str
    fail: tuple[str, ...]
    tip: tuple[str, ...]
    success: tuple[str, ...]
    avoid: str = ""
    seasons: tuple[str, ...] = ()


SKILLS = (
    Skill("swim", "swimming", ("{He} splashed wildly and swallowed a lot of water.", "{He} jumped in and sank like a stone."),
          ("Breathe slowly and let the water carry you", "Kick with your legs like a frog"),
          ("{N} swam all the way to the other side of the pond.", "{He} floated like a leaf and laughed."), avoid="swims metal", seasons=("summer", "spring")),
    Skill("whistle", "whistling", ("Only air came out.", "It sounded like a leaky kettle."),
          ("Make your mouth as small as a cherry", "Do not blow so hard. Think of a bird"),
          ("A clear, bright note flew over the fields.", "{He} whistled a whole song, and {birds} answered."), avoid="metal"),
    Skill("bake bread", "baking", ("The bread was as hard as a stone.", "There was flour on the floor, on the walls and on {his} nose, but there was no bread."),
          ("Give the dough time to rest", "Dough likes warm hands and a calm heart"),
          ("The bread came out of the oven golden and soft.", "The whole street smelled of fresh bread."), avoid="big"),
    Skill("paint", "painting", ("The tree looked like a broom, and the house looked like a shoe.", "All the colors ran together into one brown puddle."),
          ("Look for a long time before you touch the brush", "Paint what you love, not what you think you should paint"),
          ("The picture showed the hills in the evening light, and it was beautiful.", "Everyone could see at once what the picture was, and everyone smiled.")),
    Skill("dance", "dancing", ("{He} stepped on {his} own feet and fell over a chair.", "{He} turned left when everyone turned right."),
          ("Listen to the drum, and let your feet listen too", "Forget who is watching, and count to four"),
          ("{N} danced as lightly as a feather.", "{His} feet knew every step, and {he} did not fall once.")),
    Skill("read", "reading", ("The letters looked like little black beetles that ran away.", "{He} held the book upside down and did not even notice."),
          ("Start with one letter and make it your friend", "Read one word each day, and then two"),
          ("{N} read a whole page aloud, and nobody wanted to miss a word.", "Suddenly the letters turned into words, and the words turned into a story.")),
    Skill("fly a kite", "flying a kite", ("The kite fell into a bush.", "The string was tied in seven knots, and the kite hung in a tree."),
          ("Wait for the wind, and then run against it", "Give the kite more string and do not pull so hard"),
          ("The kite rose higher and higher until it was a tiny spot in the sky.", "The wind took the kite gently, and it danced above the hill."), seasons=("spring", "autumn", "summer")),
    Skill("play the flute", "playing the flute", ("It squeaked so loudly that the cat ran away.", "Not a single note was right."),
          ("Play one note until it is round and soft", "Breathe with your belly, not with your cheeks"),
          ("A sweet tune floated over the roofs.", "The song was so lovely that people stopped in the street.")),
    Skill("climb trees", "climbing trees", ("{He} slid down the trunk and landed in the grass.", "{He} got as far as the first branch and did not dare to move."),
          ("Look up and not down", "Always hold on with three {hands} and feet, and move only one"),
          ("{N} sat on the highest branch and could see over the whole village.", "Branch by branch {he} went up, right to the top."), avoid="climbs flies metal big"),
    Skill("ride a bicycle", "riding a bicycle", ("{He} wobbled and fell into the hedge.", "The bicycle went one way, and {n} went the other way."),
          ("Look far ahead and keep moving", "I will hold the saddle until you tell me to let go"),
          ("{N} rode all the way around the market square without falling.", "The wheels hummed, and the wind blew in {his} face."), avoid="tiny big"),
    Skill("make soup", "cooking", ("The soup was so salty that nobody could eat it.", "The soup was black, and so was the pot."),
          ("Taste before you add more", "Use a small fire and a lot of patience"),
          ("The soup was warm and tasty, and everyone wanted a second bowl.", "Nobody left a single drop in the pot."), avoid="big"),
    Skill("tell stories", "telling stories", ("{He} forgot the end, and everyone fell asleep.", "{He} mixed up the wolf and the grandmother, and nobody understood anything."),
          ("Tell it to just one friend, as if nobody else were there", "Think of the end first, and then walk toward it"),
          ("Everyone listened with open mouths until the very last word.", "When the story was over, they all cried: \"One more!\"")),
    Skill("skate", "skating", ("{He} slipped and sat down on the ice with a bump.", "{His} legs went in two different directions."),
          ("Bend your knees and push to the side", "Hold my scarf, and I will pull you at first"),
          ("{N} glided over the pond in a big, smooth circle.", "{He} even skated backward, and everyone clapped."), avoid="flies swims", seasons=("winter",)),
    Skill("juggle", "juggling", ("One ball hit {him} on the nose, and two rolled under the table.", "All the apples fell down at the same time."),
          ("Begin with one ball, and do not look at your {hands}", "Throw slowly, and always to the same height"),
          ("Three balls flew through the air in a perfect circle.", "{He} juggled with five apples and did not drop a single one.")),
    Skill("knit", "knitting", ("The scarf had more holes than wool.", "{He} was wrapped in yarn from head to toe."),
          ("One stitch after the other, and no hurry", "Count quietly, and start again when you lose count"),
          ("The scarf was long, warm and full of color.", "{He} had made a fine pair of socks without a single hole.")),
)
