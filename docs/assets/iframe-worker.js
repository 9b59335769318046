// Searching pages that were opened from the disk: browsers start no worker from file://, so a hidden frame runs its script.
// The search of the theme asks for `IFrameWorker` by this name.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.onmessage = this.onerror = null;
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.appendChild(this.frame);
    const inside = this.frame.contentWindow, page = this.frame.contentDocument;
    const load = name => new Promise((resolve, reject) => {
      const script = page.createElement("script");
      Object.assign(script, {src: new URL(name, document.baseURI), onload: resolve, onerror: reject});
      page.head.appendChild(script);
    });
    inside.importScripts = (...names) => names.reduce((before, name) => before.then(() => load(name)), Promise.resolve());
    inside.postMessage = data => {
      const message = new MessageEvent("message", {data});
      this.dispatchEvent(message);
      if (this.onmessage) this.onmessage(message);
    };
    this.ready = load(url);
  }

  postMessage(data) {
    this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", {data})));
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") Object.assign(window, {IFrameWorker, Worker: IFrameWorker});
