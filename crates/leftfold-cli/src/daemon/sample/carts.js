// One function for each type of event: from the document, or undefined if there is none yet, to the next one; null for none.
// They must depend on nothing else: there is no clock, no chance, no network here.

export default {
  "cart-opened": (_, { data, time }) => ({ client: data.client, items: 0, opened: time }),

  "item-added": (cart, { data }) => ({ ...cart, items: cart.items + data.quantity }),

  "cart-canceled": () => null,
};

// Which documents an event belongs to, if not the one named like its stream:
// export const route = (event) => event.data.client;
