// The environment of a script, and the functions that call it. Nondeterministic features are
// removed.
(() => {
  "use strict";
  const refuse = (what, instead) => () => {
    throw new TypeError(`${what} differs from run to run; ${instead}`);
  };
  const fromEvent = "take it from the event";
  Math.random = refuse("Math.random", fromEvent);

  const Native = Date;
  const hasZone = /^\s*[+-]?\d{4,6}(-\d\d){0,2}\s*$|(Z|GMT|UTC|[+-]\d\d:?\d\d)\s*$/i;
  const check = (args) => {
    if (args.length === 0) refuse("the current time", "use event.time")();
    if (args.length > 1) refuse("a date in the local time zone", "use Date.UTC(…)")();
    const [date] = args;
    if (typeof date === "string" && !hasZone.test(date)) {
      refuse(`a date without a zone (${date})`, "end it with Z")();
    }
    // The text of an object can't be checked: it may differ each time.
    if (date !== null && typeof date === "object" && !(date instanceof Native)) {
      throw new TypeError("Date accepts a text, a number or a date, not another object");
    }
  };
  const Fixed = function Date(...args) {
    check(args);
    return new.target ? new Native(args[0]) : new Native(args[0]).toISOString();
  };
  Fixed.prototype = Native.prototype;
  Fixed.prototype.constructor = Fixed;
  Fixed.UTC = Native.UTC;
  Fixed.parse = (value) => {
    const text = `${value}`;
    check([text]);
    return Native.parse(text);
  };
  Fixed.now = refuse("Date.now", "use event.time");
  const proto = Native.prototype;
  for (const part of ["Date", "Day", "FullYear", "Hours", "Milliseconds", "Minutes", "Month", "Seconds"]) {
    proto[`get${part}`] = proto[`getUTC${part}`];
    if (part !== "Day") proto[`set${part}`] = proto[`setUTC${part}`];
  }
  proto.getTimezoneOffset = () => 0;
  proto.toString = proto.toLocaleString = proto.toISOString;
  proto.toDateString = proto.toLocaleDateString = function () {
    return this.toISOString().slice(0, 10);
  };
  proto.toTimeString = proto.toLocaleTimeString = function () {
    return this.toISOString().slice(11);
  };
  globalThis.Date = Fixed;

  const { parse, rawJSON, stringify } = JSON;
  const { isFinite, isSafeInteger } = Number;
  const getTime = proto.getTime;
  const isArray = Array.isArray;
  const entries = Object.entries;

  /** Keeps whole numbers that JavaScript would round as raw JSON. Arithmetic on them throws. */
  const exact = (_, value, { source }) =>
    typeof value === "number" && !isSafeInteger(value) && wholeNumber.test(source) ? rawJSON(source) : value;
  const wholeNumber = /^-?[0-9]+$/;

  /** Returns the place of a number or a date that JSON writes as null. */
  const notANumber = (value, path) => {
    if (typeof value === "number") return isFinite(value) ? undefined : `${path} is ${value}`;
    if (value === null || typeof value !== "object") return undefined;
    if (value instanceof Native && !isFinite(getTime.call(value))) return `${path} is an invalid date`;
    for (const [name, inner] of entries(value)) {
      const found = notANumber(inner, path === "" ? name : `${path}.${name}`);
      if (found !== undefined) return found;
    }
    return undefined;
  };

  const kindOf = (value) => {
    if (value === undefined) return "nothing";
    if (isArray(value)) return "an array";
    if (value instanceof Promise) return "a promise";
    return value === null ? "null" : `a ${typeof value}`;
  };

  globalThis.__leftfold = (exports) => {
    const handlers = exports.default;
    if (handlers === null || typeof handlers !== "object") {
      throw new TypeError("export default must be an object of functions by event type");
    }
    const types = [];
    for (const [type, handler] of entries(handlers)) {
      if (typeof handler !== "function") {
        throw new TypeError(`the export for ${type} must be a function, not ${kindOf(handler)}`);
      }
      types.push(type);
    }
    const { route, version = 1 } = exports;
    if (route !== undefined && typeof route !== "function") {
      throw new TypeError(`route must be a function, not ${kindOf(route)}`);
    }
    if (!Number.isSafeInteger(version) || version < 1 || version > 0xffff_ffff) {
      throw new TypeError("version must be a whole number, at least 1");
    }
    let last;
    const fold = (type, document, event, isExact) => {
      last = undefined;
      const revive = isExact ? exact : undefined;
      const before = document === undefined ? undefined : parse(document, revive);
      const after = handlers[type](before, parse(event, revive));
      if (after === null) return null;
      if (typeof after !== "object" || isArray(after) || after instanceof Promise) {
        throw new TypeError(
          `the function for ${type} returned ${kindOf(after)}; return the document, or null to delete it`,
        );
      }
      if (typeof after.toJSON === "function") {
        throw new TypeError(`the function for ${type} returned an object with toJSON; return a plain object`);
      }
      last = after;
      return stringify(after);
    };
    /** Rejects the last document if it contains a number or a date that JSON writes as null. */
    const check = (type) => {
      const wrong = notANumber(last, "");
      if (wrong !== undefined) throw new RangeError(`the function for ${type} returned a document in which ${wrong}`);
    };
    const routed = (event, isExact) => {
      const ids = route(parse(event, isExact ? exact : undefined));
      const all = ids === null || ids === undefined ? [] : isArray(ids) ? ids : [ids];
      for (const id of all) {
        if (typeof id !== "string") {
          throw new TypeError(`route returned ${kindOf(id)}; return an id, an array of ids, or null`);
        }
      }
      return all;
    };
    delete globalThis.__leftfold;
    Object.assign(globalThis, { __leftfoldFold: fold, __leftfoldCheck: check, __leftfoldRoute: routed });
    Object.freeze(globalThis);
    return { types, version, routes: route !== undefined };
  };
})();
