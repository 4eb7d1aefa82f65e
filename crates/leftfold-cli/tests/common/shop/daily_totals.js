export const route = ({ time }) => [time.slice(0, 10), "all"];

export default {
  "shopping-cart-confirmed": (totals, { data }) => ({
    carts: (totals?.carts ?? 0) + 1,
    revenue: (totals?.revenue ?? 0) + data.total,
  }),
};
