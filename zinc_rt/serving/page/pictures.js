// Pictures of a question: pasted, dropped or chosen, made smaller where they are large, and kept as data: URLs.
const SIDE = 1536, BYTES = 512 * 1024, MOST = 8;
const KINDS = ["image/png", "image/jpeg", "image/webp", "image/gif"];

export const isPicture = (url) => typeof url === "string" && /^data:image\/(png|jpeg|webp|gif);base64,/.test(url);
export const files = (transfer) => [...transfer?.files ?? []].filter((file) => file.type.startsWith("image/"));

const read = (blob) => new Promise((done, failed) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result);
  reader.onerror = () => failed(reader.error);
  reader.readAsDataURL(blob);
});

// The URL of a file's picture; a large one is scaled down and becomes a JPEG. Throws an Error that says what is wrong.
export async function urlOf(file) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error("is no picture that this browser can read");
  }
  const { width, height } = bitmap, scale = Math.min(1, SIDE / Math.max(width, height));
  if (scale === 1 && file.size <= BYTES && KINDS.includes(file.type)) return read(file);
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  const paper = canvas.getContext("2d");
  paper.fillStyle = "#fff";
  paper.fillRect(0, 0, canvas.width, canvas.height);
  paper.imageSmoothingQuality = "high";
  paper.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", 0.85);
}

// The content of a message as the server takes it.
export const content = (text, pictures) => pictures?.length
  ? [...pictures.map((url) => ({ type: "image_url", image_url: { url } })), ...text ? [{ type: "text", text }] : []]
  : text;

// Thumbnails. remove: called with the index of one that is taken away; without it they stay.
export function thumbnails(pictures, remove) {
  return pictures.map((src, index) => {
    const made = document.createElement("li");
    made.append(Object.assign(document.createElement("img"), { src, alt: `Picture ${index + 1}` }));
    if (remove) {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: "×", ariaLabel: `Remove picture ${index + 1}` });
      button.addEventListener("click", () => remove(index));
      made.append(button);
    }
    return made;
  });
}

// Adds the pictures of files to a list; says what is wrong with the first that cannot be.
export async function add(pictures, some) {
  for (const file of some) {
    if (pictures.length >= MOST) throw new Error(`A message takes ${MOST} pictures.`);
    try {
      pictures.push(await urlOf(file));
    } catch (error) {
      throw new Error(`${file.name || "The picture"} ${error.message}.`);
    }
  }
}
