// One function per event type: from the document (undefined at first) to the next one, or null to
// delete it. Functions use only their arguments: scripts have no clock, random numbers or network.

export default {
  "cart-opened": (_, { data, time }) => ({ client: data.client, items: 0, opened: time }),

  "item-added": (cart, { data }) => ({ ...cart, items: cart.items + data.quantity }),

  "cart-canceled": () => null,
};

// A document has the id of its stream, unless `route` returns other ids, one or several:
// export const route = (event) => event.data.client;
