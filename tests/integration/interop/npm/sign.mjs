// Sign a statement with sigstore's library for Node and a private key; no service is asked.
// Usage: node sign.mjs PRIVATE-KEY STATEMENT BUNDLE
import { createHash, createPrivateKey, createPublicKey, sign } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { bundleToJSON } from '@sigstore/bundle';
import { DSSEBundleBuilder } from '@sigstore/sign';

const [keyFile, statementFile, bundleFile] = process.argv.slice(2);
const secret = createPrivateKey(readFileSync(keyFile));
const publicKey = createPublicKey(secret).export({ type: 'spki', format: 'pem' });
const hint = createHash('sha256').update(publicKey).digest('hex');

const signer = {
  sign: async (data) => ({
    key: { $case: 'publicKey', publicKey, hint },
    signature: sign('sha256', data, secret),
  }),
};
const builder = new DSSEBundleBuilder({ signer, witnesses: [] });
const bundle = await builder.create({
  data: readFileSync(statementFile),
  type: 'application/vnd.in-toto+json',
});
writeFileSync(bundleFile, JSON.stringify(bundleToJSON(bundle)));
