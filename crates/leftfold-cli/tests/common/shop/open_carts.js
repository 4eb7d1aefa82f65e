export const route = ({ data }) => {
  if (typeof data.clientId !== "string") throw new TypeError("clientId is missing");
  return data.clientId;
};

const without = (open, { stream }) => {
  const carts = (open?.carts ?? []).filter((cart) => cart !== stream);
  return carts.length === 0 ? null : { carts };
};

export default {
  "shopping-cart-opened": (open, { stream }) => ({ carts: [...new Set([...(open?.carts ?? []), stream])].sort() }),
  "shopping-cart-confirmed": without,
  "shopping-cart-canceled": without,
};
