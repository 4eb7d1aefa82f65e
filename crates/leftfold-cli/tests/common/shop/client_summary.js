export const route = ({ data }) => {
  if (typeof data.clientId !== "string") throw new TypeError("clientId is missing");
  return data.clientId;
};

const visit = (change) => (client, { data }) => {
  const { opened, confirmed, canceled, spent } = client ?? { opened: 0, confirmed: 0, canceled: 0, spent: 0 };
  return change({ opened, confirmed, canceled, spent }, data);
};

export default {
  "shopping-cart-opened": visit((client) => ({ ...client, opened: client.opened + 1 })),

  "shopping-cart-confirmed": visit((client, { total }) => ({
    ...client,
    confirmed: client.confirmed + 1,
    spent: client.spent + total,
  })),

  "shopping-cart-canceled": visit((client) => ({ ...client, canceled: client.canceled + 1 })),
};
