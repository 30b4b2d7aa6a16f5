// A file goes up in pieces of 8 MiB; after a broken line it asks how much has arrived and goes on from there.
const PIECE = 8 * 1024 * 1024;
const TRIES = 6;

const wait = (ms) => new Promise((done) => setTimeout(done, ms));

// one id for one file of this computer, so that choosing it again after a reload goes on where it stopped
async function idOf(file) {
  const text = `${file.name}|${file.size}|${file.lastModified}`;
  let a = 0x811c9dc5, b = 0x1234567;
  for (const c of text) { a = Math.imul(a ^ c.codePointAt(0), 16777619) >>> 0; b = Math.imul(b + c.codePointAt(0), 2654435761) >>> 0; }
  return a.toString(16).padStart(8, "0") + b.toString(16).padStart(8, "0") + file.size.toString(16).padStart(8, "0");
}

function message(answer, status) {
  const e = answer && answer.error;
  return e ? `${e.what}: found ${e.found}; expected ${e.expected}. ${e.remedy}` : `The server answered ${status}.`;
}

async function send(file, token, report) {
  const url = `upload/${await idOf(file)}/${encodeURIComponent(file.name)}`;
  const headers = { "X-Nuscope-Token": token };
  let at = null, failed = 0;
  for (;;) {
    try {
      if (at === null) {
        const asked = await fetch(url, { headers });
        const answer = await asked.json();
        if (!asked.ok) throw { final: message(answer, asked.status) };
        at = answer.received;
      }
      const end = Math.min(at + PIECE, file.size);
      const sent = await fetch(url, { method: "PUT", headers: { ...headers, "Content-Range": `bytes ${at}-${end - 1}/${file.size}` }, body: file.slice(at, end) });
      const answer = await sent.json();
      if (sent.status === 409) { at = answer.received; continue; }
      if (sent.status >= 500 && sent.status !== 507) throw new Error(`status ${sent.status}`);
      if (!sent.ok) throw { final: message(answer, sent.status) };
      at = answer.received; failed = 0;
      report(at / file.size);
      if (answer.id) return { id: answer.id, name: answer.name, bytes: answer.bytes };
    } catch (fault) {
      if (fault.final) throw new Error(fault.final);
      if (++failed > TRIES) throw new Error("The line to the server broke. Choose the file again to go on from where it stopped.");
      at = null;
      await wait(500 * 2 ** failed);
    }
  }
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  // a reload starts a new session on the server: by this cookie it finds what this browser has brought; it ends with the browser
  const secure = location.protocol === "https:" ? "; Secure" : "";
  document.cookie = `${data.cookie}=${data.token}; path=/; SameSite=Strict${secure}`;
  const drop = parentElement.querySelector(".drop");
  drop.replaceChildren();
  const row = document.createElement("div"); row.className = "row";
  const button = document.createElement("button"); button.textContent = data.several ? "Choose files" : "Choose a file";
  button.setAttribute("aria-label", `${button.textContent}: ${data.label}`);
  const note = document.createElement("span"); note.textContent = `or drop here · ${data.endings.join(", ")}`;
  const input = document.createElement("input"); input.type = "file"; input.multiple = data.several; input.accept = data.endings.join(",");
  row.append(button, note, input); drop.append(row);
  button.onclick = () => input.click();

  async function take(files) {
    const brought = [];
    for (const file of files) {
      const line = document.createElement("div"); line.className = "line";
      const name = document.createElement("span"); name.textContent = file.name;
      const bar = document.createElement("progress"); bar.max = 1; bar.value = 0;
      line.append(name, bar); drop.append(line);
      try {
        if (file.size === 0) throw new Error(`${file.name} is empty.`);
        if (file.size > data.limit) throw new Error(`${file.name} has ${file.size.toLocaleString("en")} bytes; at most ${data.limit.toLocaleString("en")} can be uploaded. Put it into a folder of this server instead.`);
        brought.push(await send(file, data.token, (share) => { bar.value = share; }));
        line.remove();
      } catch (fault) {
        bar.remove(); line.classList.add("bad"); name.textContent = fault.message;
      }
    }
    input.value = "";
    if (brought.length) setTriggerValue("brought", brought);
  }
  input.onchange = () => take([...input.files]);
  drop.ondragover = (e) => { e.preventDefault(); drop.classList.add("over"); };
  drop.ondragleave = () => drop.classList.remove("over");
  drop.ondrop = (e) => { e.preventDefault(); drop.classList.remove("over"); take([...e.dataTransfer.files].slice(0, data.several ? undefined : 1)); };
}
