const open = (cart) => {
  if (cart === undefined) throw new Error("the cart is not open");
  if (cart.status === "confirmed") throw new Error("the cart is confirmed already");
  return cart;
};

const sum = (cart) => ({
  ...cart,
  total: Object.values(cart.items).reduce((sum, item) => sum + item.quantity * item.unitPrice, 0),
});

export default {
  "shopping-cart-opened": (cart, { data }) => {
    if (cart !== undefined) throw new Error("the cart is open already");
    return { clientId: data.clientId, status: "open", items: {}, total: 0, confirmedAt: null };
  },

  "product-item-added": (cart, { data: { productId, name, quantity, unitPrice } }) => {
    const { items } = open(cart);
    const before = items[productId] ?? { name, quantity: 0 };
    return sum({ ...cart, items: { ...items, [productId]: { ...before, quantity: before.quantity + quantity, unitPrice } } });
  },

  "product-item-removed": (cart, { data: { productId, quantity } }) => {
    const { [productId]: item, ...items } = open(cart).items;
    if (item === undefined || item.quantity < quantity) throw new Error(`there are fewer of ${productId}`);
    if (item.quantity > quantity) items[productId] = { ...item, quantity: item.quantity - quantity };
    return sum({ ...cart, items });
  },

  "shopping-cart-confirmed": (cart, { time }) => ({ ...open(cart), status: "confirmed", confirmedAt: time }),

  "shopping-cart-canceled": (cart) => open(cart) && null,
};
