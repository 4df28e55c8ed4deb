// What is open on a page, in the address after `#`, as in `#task=write-3&tab=reviews`.

const read = () => new URLSearchParams(location.hash.slice(1));

export const open = (name) => read().get(name) ?? "";

export function remember(name, value) {
  const now = read();
  if (value) now.set(name, value);
  else now.delete(name);
  const words = now.toString();
  history.replaceState(history.state, "", words ? `#${words}` : location.pathname + location.search);
}
