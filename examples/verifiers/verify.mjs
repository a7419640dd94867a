// Verify bundles with sigstore's library for Node, by a public key and nothing else.
// Usage: node verify.mjs PUBLIC-KEY BUNDLE...
import { createHash, createPublicKey } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { bundleFromJSON } from '@sigstore/bundle';
import { Verifier, toSignedEntity, toTrustMaterial } from '@sigstore/verify';

const [keyFile, ...files] = process.argv.slice(2);
if (files.length === 0) {
  console.error('usage: node verify.mjs PUBLIC-KEY BUNDLE...');
  process.exit(2);
}
const key = createPublicKey(readFileSync(keyFile));
const pem = key.export({ type: 'spki', format: 'pem' });
const hint = createHash('sha256').update(pem).digest('hex');

// No certificate authority, log or timestamp counts: the key is trusted by itself.
const noServices = { certificateAuthorities: [], timestampAuthorities: [], tlogs: [], ctlogs: [] };
const keys = { [hint]: { rawBytes: key.export({ type: 'spki', format: 'der' }) } };
const verifier = new Verifier(toTrustMaterial(noServices, keys), {
  tlogThreshold: 0,
  timestampThreshold: 0,
});

for (const file of files) {
  try {
    const bundle = bundleFromJSON(JSON.parse(readFileSync(file, 'utf8')));
    verifier.verify(toSignedEntity(bundle));
    const statement = JSON.parse(bundle.content.dsseEnvelope.payload);
    console.log(`${file}: verified ${statement.predicateType}`);
  } catch (error) {
    const fields = error.fields?.map((name) => ` ${name}`).join('') ?? '';
    console.error(`${file}: ${error.code ?? error.name}: ${error.message}${fields}`);
    process.exitCode = 1;
  }
}
